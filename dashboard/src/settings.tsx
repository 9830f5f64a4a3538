// The settings of a queue, to look at and to change.

import type { JSX } from "preact";
import { changedOf, Fields, SECTIONS, useTexts, wishOf } from "./fields";
import { state, useLive } from "./live";
import type { Detail } from "./types";
import { done } from "./ui";

const ALL = SECTIONS.flatMap(([, fields]) => fields);

export function Settings({ queue, detail }: { queue: string; detail: Detail | null }): JSX.Element {
  const live = useLive();
  const may = live.may("configure");
  const { texts, type, sent } = useTexts();
  if (!detail) return <p class="empty">Reading…</p>;
  const now = detail.stats.settings;
  const changed = changedOf(ALL, now, texts);
  const names = changed.map((each) => each.name).join(", ");
  const save = async (): Promise<void> => {
    const wish = async (): Promise<void> => state.change(queue, wishOf(ALL, now, texts));
    if (await done(wish(), `${names} changed.`)) sent(texts);
  };
  return (
    <form
      class="settings"
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      {SECTIONS.map(([title, fields]) => (
        <fieldset key={title} class="card">
          <legend class="hidden">{title}</legend>
          <h2 aria-hidden="true">{title}</h2>
          <Fields fields={fields} now={now} texts={texts} type={type} may={may} />
        </fieldset>
      ))}
      <p class="dim">
        Spread over {String(detail.stats.shards)} {detail.stats.shards === 1 ? "shard" : "shards"}
        {now["group_shards"] ? `, groups over ${String(now["group_shards"])}` : ""}; their number can only grow: “osqueue queue
        configure --shards”. Settings of kinds are beside what is used of them, under Now.
      </p>
      {may && (
        <div class={`buttons bottom ${changed.length ? "open" : ""}`}>
          <button type="submit" class="primary" disabled={changed.length === 0}>
            {changed.length === 0 ? "Nothing changed" : `Change ${names}`}
          </button>
          {changed.length > 0 && (
            <button type="button" onClick={() => sent(texts)}>
              Put back
            </button>
          )}
        </div>
      )}
    </form>
  );
}
