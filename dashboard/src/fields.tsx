// Settings as fields of a form: how each is written, read and explained.

import type { JSX } from "preact";
import { useId, useState } from "preact/hooks";
import { exact, secondsOf, starts, startsOf } from "./format";

export interface Field {
  name: string;
  text: string;
  note: string;
  form: "number" | "length" | "rate" | "text" | string[]; // or one of these words
  emptied?: boolean; // may it be left empty?
}

const NUMBER = "number";
const LENGTH = "length";
const RATE = "rate";

// What a job does not say itself its kind does, and what its kind does not say the queue.
export const OF_KINDS: Field[] = [
  { name: "max_running", text: "Running at once", note: "0 is no limit", form: NUMBER },
  { name: "rate", text: "Rate", note: "starts in a time: 100/min, 10/s", form: RATE, emptied: true },
  { name: "burst", text: "Burst", note: "starts at once; 0 is those of one second", form: NUMBER },
  { name: "priority", text: "Priority", note: "0 is the most urgent", form: NUMBER },
  { name: "max_attempts", text: "Attempts", note: "then a job is dead", form: NUMBER },
  { name: "backoff_base", text: "First pause before a retry", note: "doubled at each", form: LENGTH },
  { name: "backoff_cap", text: "Longest pause before a retry", note: "", form: LENGTH },
  { name: "run_within", text: "Run within", note: "0 is no limit", form: LENGTH },
  { name: "start_within", text: "Start within", note: "0 is no deadline", form: LENGTH },
  { name: "result_ttl", text: "Keep results", note: "", form: LENGTH },
];

export const OF_GROUPS: Field[] = [
  { name: "running", text: "Running at once", note: "1 is in order, 0 is no limit", form: NUMBER },
  { name: "rate", text: "Rate", note: "starts in a time: 100/min, 10/s", form: RATE },
  { name: "burst", text: "Burst", note: "starts at once; 0 is those of one second", form: NUMBER },
];

const yes = ["true", "false"];

export const SECTIONS: [string, Field[]][] = [
  [
    "Limits",
    [...OF_KINDS.slice(0, 3), { name: "limiter", text: "Pacer", note: "shared with other queues", form: "text", emptied: true }],
  ],
  [
    "Order",
    [
      OF_KINDS[3]!,
      { name: "ageing", text: "Ageing", note: "one priority more urgent after so long; 0 is never", form: LENGTH },
      { name: "fair", text: "Fair", note: "groups of which the fewest run go first", form: yes },
    ],
  ],
  ["Retries and deadlines", OF_KINDS.slice(4, 9)],
  [
    "Kept",
    [
      OF_KINDS[9]!,
      { name: "dead_ttl", text: "Keep dead letters", note: "", form: LENGTH },
      { name: "archive_payloads", text: "Payloads in the archive", note: "of jobs that end from now on", form: yes },
    ],
  ],
  [
    "Groups",
    [
      { name: "group_running", text: "Running at once of a group", note: "1 is in order, 0 is no limit", form: NUMBER },
      { name: "group_rate", text: "Rate of a group", note: "starts in a time: 100/min, 10/s", form: RATE, emptied: true },
      { name: "group_burst", text: "Burst of a group", note: "starts at once; 0 is those of one second", form: NUMBER },
      { name: "group_on_failure", text: "When its job fails", note: "in order: the others wait, or go on", form: ["hold", "skip"] },
      { name: "group_on_dead", text: "When its job is dead", note: "", form: ["go_on", "stop"] },
    ],
  ],
];

/** A value as the field shows it. */
export function shown(field: Field, value: unknown): string {
  if (value == null) return "";
  if (field.form === LENGTH) return exact(value as number);
  if (field.form === RATE) return starts(value as [number, number]);
  return String(value);
}

/** What a field says, as the API takes it; null where it is empty. Throws what is wrong. */
function read(field: Field, text: string): unknown {
  const plain = text.trim();
  if (!plain) return null;
  if (field.form === NUMBER) {
    if (!/^-?\d+$/.test(plain)) throw new Error(`${field.text}: “${plain}” is no whole number.`);
    return Number(plain);
  }
  if (field.form === LENGTH) {
    const seconds = secondsOf(plain);
    if (seconds === null) throw new Error(`${field.text}: “${plain}” is no length of time. Write 90 s, 15 min, 2 h or 14 d.`);
    return seconds;
  }
  if (field.form === RATE) {
    const found = startsOf(plain);
    if (found === null) throw new Error(`${field.text}: “${plain}” is no rate. Write 100/min, 10/s or 5/90 s.`);
    return found;
  }
  return plain === "true" ? true : plain === "false" ? false : plain;
}

export type Values = Record<string, unknown>;
export type Texts = Record<string, string>;

/**
 * What is typed into fields, by their names; all else shows what is. `sent` forgets what was sent, and keeps what was typed
 * since. No effect clears it: effects come late, after the first keys. What belongs to another queue gets another `key`.
 */
export function useTexts(): { texts: Texts; type: (name: string, text: string) => void; sent: (texts: Texts) => void } {
  const [texts, set] = useState<Texts>({});
  return {
    texts,
    type: (name, text) => set((before) => ({ ...before, [name]: text })),
    sent: (those) => set((before) => Object.fromEntries(Object.entries(before).filter(([name, text]) => text !== those[name]))),
  };
}

/** The fields that say something else than what is. */
export const changedOf = (fields: Field[], now: Values, texts: Texts): Field[] =>
  fields.filter((field) => texts[field.name] !== undefined && texts[field.name]!.trim() !== shown(field, now[field.name]));

/** What to ask the API for. `inherits`: an empty field is as the queue says. Throws what is wrong. */
export function wishOf(fields: Field[], now: Values, texts: Texts, inherits = false): Values {
  const wish: Values = {};
  for (const field of changedOf(fields, now, texts)) {
    const value = read(field, texts[field.name]!);
    if (value === null && !inherits && !field.emptied) throw new Error(`${field.text}: it is empty.`);
    wish[field.name] = value;
  }
  return wish;
}

export function Fields({
  fields,
  now,
  texts,
  type,
  may,
  hint,
}: {
  fields: Field[];
  now: Values;
  texts: Texts;
  type: (name: string, text: string) => void;
  may: boolean;
  hint?: (field: Field) => string; // what holds where one is empty
}): JSX.Element {
  const changed = changedOf(fields, now, texts);
  const id = useId();
  return (
    <div class="fields">
      {fields.map((field) => {
        const value = texts[field.name] ?? shown(field, now[field.name]);
        const note = field.note ? `${id}-${field.name}-note` : undefined;
        const change = (event: { currentTarget: HTMLInputElement | HTMLSelectElement }): void =>
          type(field.name, event.currentTarget.value);
        return (
          <div key={field.name} class={changed.includes(field) ? "changed" : ""}>
            <label for={`${id}-${field.name}`}>{field.text}</label>
            {Array.isArray(field.form) ? (
              <select id={`${id}-${field.name}`} aria-describedby={note} name={field.name} value={value} disabled={!may} onChange={change}>
                {field.form.map((word) => (
                  <option key={word} value={word}>
                    {word === "true" ? "yes" : word === "false" ? "no" : word.replace("_", " ")}
                  </option>
                ))}
              </select>
            ) : (
              <input
                id={`${id}-${field.name}`}
                aria-describedby={note}
                type="text"
                inputMode={field.form === NUMBER ? "numeric" : "text"}
                name={field.name}
                value={value}
                readOnly={!may}
                placeholder={hint?.(field) ?? ""}
                autocomplete="off"
                spellcheck={false}
                onInput={change}
              />
            )}
            {field.note && <small id={`${id}-${field.name}-note`}>{field.note}</small>}
          </div>
        );
      })}
    </div>
  );
}
