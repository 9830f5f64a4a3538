// Charts over time, by uPlot, in the colours of the page.

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

export interface Line {
  name: string;
  colour: string; // a custom property of the style sheet
  fill?: boolean;
}

const HEIGHT = 168;

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const two = (n: number): string => String(n).padStart(2, "0");
const clock = (at: number, seconds: boolean): string => {
  const date = new Date(at * 1000);
  return `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}${seconds ? `:${two(date.getUTCSeconds())}` : ""}`;
};

export function Chart({
  label,
  lines,
  data,
  format,
}: {
  label: string;
  lines: Line[]; // the one that counts most comes last, over the others
  data: (number | null)[][]; // seconds, then one list a line
  format: (n: number) => string;
}): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);

  useEffect(() => {
    const div = place.current;
    if (!div) return undefined;
    const make = (): void => {
      plot.current?.destroy();
      const axis = {
        stroke: colour("--dim"),
        grid: { stroke: colour("--line"), width: 1 },
        ticks: { show: false },
        font: "11px system-ui, sans-serif",
      };
      plot.current = new uPlot(
        {
          width: Math.max(200, div.clientWidth),
          height: HEIGHT,
          padding: [8, 26, 0, 0],
          legend: { show: false },
          cursor: { drag: { x: false, y: false }, points: { size: 6 } },
          scales: { x: { time: true }, y: { range: (_plot, _low, high) => [0, Math.max(high * 1.12, 1)] } },
          axes: [
            { ...axis, values: (_plot, ticks, _axis, _space, step) => ticks.map((at) => clock(at, step < 60)), space: 70, size: 24 },
            { ...axis, values: (_plot, ticks) => ticks.map(format), space: 36, size: 48 },
          ],
          series: [
            {},
            ...lines.map((each) => ({
              label: each.name,
              stroke: colour(each.colour),
              width: 1.5,
              points: { show: false },
              ...(each.fill ? { fill: `${colour(each.colour)}1f` } : {}),
            })),
          ],
        },
        data as uPlot.AlignedData,
        div,
      );
    };
    make();
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: Math.max(200, div.clientWidth), height: HEIGHT }));
    resized.observe(div);
    const theme = matchMedia("(prefers-color-scheme: dark)");
    theme.addEventListener("change", make);
    return () => {
      resized.disconnect();
      theme.removeEventListener("change", make);
      plot.current?.destroy();
      plot.current = null;
    };
  }, []);

  useEffect(() => {
    plot.current?.setData(data as uPlot.AlignedData);
  }, [data]);

  const last = (at: number): string => {
    const value = data[at + 1]?.at(-1);
    return value == null ? "–" : format(value);
  };
  return (
    <figure class="chart">
      <figcaption>
        <span class="title">{label}</span>
        {lines
          .map((each, at) => (
            <span key={each.name} class={`legend ${each.colour.replace("--", "")}`}>
              {each.name} <b>{last(at)}</b>
            </span>
          ))
          .reverse()}
      </figcaption>
      <div ref={place} aria-hidden="true" />
    </figure>
  );
}
