// Numbers, sizes and times as people read them.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

export const count = (n: number | null | undefined): string => (n == null ? "–" : whole.format(n));

/** A number that has to fit: 1,284 and 1.3M. */
export const short = (n: number | null | undefined): string =>
  n == null ? "–" : Math.abs(n) < 100_000 ? whole.format(n) : compact.format(n);

export function rate(perSecond: number | null | undefined): string {
  if (perSecond == null) return "–";
  if (perSecond === 0) return "0";
  if (perSecond >= 100) return `${short(Math.round(perSecond))}/s`;
  if (perSecond >= 1) return `${perSecond.toFixed(1)}/s`;
  const perMinute = perSecond * 60;
  return perMinute >= 0.95 ? `${Math.round(perMinute)}/min` : "<1/min";
}

const UNITS: [number, string][] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
];

export function duration(seconds: number | null | undefined): string {
  if (seconds == null) return "–";
  if (seconds < 0.0995) return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  for (const [size, unit] of UNITS) {
    if (seconds >= size * 2 || (unit === "min" && seconds >= size)) {
      const n = seconds / size;
      return `${n < 10 && unit !== "min" ? n.toFixed(1).replace(/\.0$/, "") : Math.round(n)} ${unit}`;
    }
  }
  return `${Math.round(seconds)} s`;
}

export function ago(at: string | number | null | undefined, now = Date.now() / 1000): string {
  if (at == null) return "–";
  const seconds = now - unix(at);
  if (Math.abs(seconds) < 1) return "now";
  return seconds >= 0 ? `${duration(seconds)} ago` : `in ${duration(-seconds)}`;
}

export const unix = (at: string | number): number => (typeof at === "number" ? at : Date.parse(at) / 1000);

export const moment = (at: string | number): string => {
  const date = new Date(unix(at) * 1000);
  return Number.isNaN(date.getTime()) ? String(at) : date.toISOString().replace("T", " ").replace(/\.\d+Z$/, " UTC");
};

export function bytes(n: number): string {
  if (n < 1_000) return `${n} B`;
  if (n < 1_000_000) return `${(n / 1_000).toFixed(n < 10_000 ? 1 : 0)} kB`;
  return `${(n / 1_000_000).toFixed(1)} MB`;
}

export const dollars = (n: number): string => (n > 0 && n < 0.01 ? "under $0.01" : `$${n.toFixed(2)}`);

export const plural = (n: number, one: string, many = `${one}s`): string => `${count(n)} ${n === 1 ? one : many}`;

/** The p-th of values that are in order. */
export const percentile = (ordered: number[], p: number): number | null =>
  ordered.length ? (ordered[Math.min(ordered.length - 1, Math.floor(ordered.length * p))] ?? null) : null;

const LENGTHS: [number, string][] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
  [1, "s"],
  [0.001, "ms"],
];

/** Seconds as one writes them: 14 d, 90 s. What this says, `secondsOf` reads. */
export function exact(seconds: number): string {
  if (seconds === 0) return "0";
  const [size, unit] = LENGTHS.find(([each]) => Number.isInteger(Number((seconds / each).toFixed(6)))) ?? [1, "s"];
  return `${Number((seconds / size).toFixed(6))} ${unit}`;
}

/** The inverse; null where it is no length of time. */
export function secondsOf(text: string): number | null {
  const found = /^(-?[\d.]+)\s*(ms|s|min|m|h|d)?$/.exec(text.trim());
  const size = LENGTHS.find(([, unit]) => unit === (found?.[2] === "m" ? "min" : (found?.[2] ?? "s")))?.[0];
  const n = Number(found?.[1]);
  return !found || size === undefined || Number.isNaN(n) ? null : Number((n * size).toFixed(6));
}

/** Starts in a time: 600/min, 5/90 s. What this says, `startsOf` reads. */
export function starts([n, period]: [number, number]): string {
  const unit = LENGTHS.find(([size]) => size === period)?.[1];
  return `${n}/${unit ?? exact(period)}`;
}

/** The inverse; null where it is no rate. */
export function startsOf(text: string): [number, number] | null {
  const [n = "", period = ""] = text.split("/", 2).map((each) => each.trim());
  const seconds = secondsOf(/^\d/.test(period) ? period : `1${period}`);
  return /^\d+$/.test(n) && period && seconds ? [Number(n), seconds] : null;
}
