// The settings of a queue, to look at and to change.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { state, useLive } from "./live";
import type { Detail } from "./types";
import { done, Section } from "./ui";

interface Setting {
  name: string;
  text: string;
  note: string;
  step?: number;
}

const SETTINGS: Setting[] = [
  { name: "max_running", text: "Running at once", note: "jobs; 0 is no limit" },
  { name: "rate", text: "Rate", note: "starts/seconds, as 100/60; empty is no limit" },
  { name: "burst", text: "Burst", note: "starts at once; 0 is those of one second" },
  { name: "max_attempts", text: "Attempts", note: "before a job is dead" },
  { name: "priority", text: "Priority", note: "0 is the most urgent" },
  { name: "backoff_base", text: "First pause before a retry", note: "seconds" },
  { name: "backoff_cap", text: "Longest pause before a retry", note: "seconds" },
  { name: "run_within", text: "Run within", note: "seconds; 0 is no limit" },
  { name: "start_within", text: "Start within", note: "seconds; 0 is no limit" },
  { name: "result_ttl", text: "Keep results", note: "seconds" },
  { name: "dead_ttl", text: "Keep dead letters", note: "seconds" },
  { name: "group_running", text: "Running at once of a group", note: "jobs; 1 is in order, 0 is no limit" },
];

const shown = (value: unknown): string =>
  value == null ? "" : Array.isArray(value) ? value.join("/") : String(value);

function read(name: string, text: string): unknown {
  const plain = text.trim();
  if (name === "rate") {
    if (!plain) return null;
    return plain.split("/").map(Number);
  }
  return Number(plain);
}

export function Settings({ queue, detail }: { queue: string; detail: Detail | null }): JSX.Element {
  const live = useLive();
  const may = live.may("configure");
  const [changed, setChanged] = useState<Record<string, string>>({});
  useEffect(() => setChanged({}), [queue]);
  if (!detail) return <p class="empty">Reading…</p>;
  const now = detail.stats.settings;
  const wished = Object.entries(changed).filter(([name, text]) => text.trim() !== shown(now[name]));
  const save = async (): Promise<void> => {
    const body = Object.fromEntries(wished.map(([name, text]) => [name, read(name, text)]));
    if (await done(state.change(queue, body), `${wished.map(([name]) => name).join(", ")} changed.`)) setChanged({});
  };
  const others = Object.entries(now).filter(([name, value]) => !SETTINGS.some((each) => each.name === name) && value !== null);
  return (
    <div class="columns">
      <Section title="Settings" name="wide">
        <form
          class="settings"
          onSubmit={(event) => {
            event.preventDefault();
            void save();
          }}
        >
          {SETTINGS.map((each) => (
            <label key={each.name} class={wished.some(([name]) => name === each.name) ? "changed" : ""}>
              <span>{each.text}</span>
              <input
                type="text"
                inputMode={each.name === "rate" ? "text" : "decimal"}
                name={each.name}
                value={changed[each.name] ?? shown(now[each.name])}
                readOnly={!may}
                autocomplete="off"
                onInput={(event) => {
                  const text = event.currentTarget.value;
                  setChanged((before) => ({ ...before, [each.name]: text }));
                }}
              />
              <small>{each.note}</small>
            </label>
          ))}
          {may && (
            <div class="buttons">
              <button type="submit" class="primary" disabled={wished.length === 0}>
                {wished.length === 0 ? "Nothing changed" : `Change ${wished.map(([name]) => name).join(", ")}`}
              </button>
              {wished.length > 0 && (
                <button type="button" onClick={() => setChanged({})}>
                  Put back
                </button>
              )}
            </div>
          )}
        </form>
      </Section>
      <Section title="Others">
        <dl class="facts">
          {others.map(([name, value]) => (
            <Other key={name} name={name} value={value} />
          ))}
        </dl>
        <p class="dim">“osqueue queue configure” changes these.</p>
      </Section>
    </div>
  );
}

function Other({ name, value }: { name: string; value: unknown }): JSX.Element {
  return (
    <>
      <dt>{name}</dt>
      <dd class="break mono">{typeof value === "object" ? JSON.stringify(value) : String(value)}</dd>
    </>
  );
}
