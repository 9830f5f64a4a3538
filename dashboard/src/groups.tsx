// Groups: those that run or that something holds, and what single ones have of their own.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { cancelMany } from "./cancel";
import { changedOf, Fields, OF_GROUPS, shown, useTexts, wishOf, type Field } from "./fields";
import { count, duration, plural, unix } from "./format";
import { linkTo, state, useClock, useLive } from "./live";
import type { Detail, Group } from "./types";
import { Dialog, done, Empty, Section, type Ask } from "./ui";

const SHOWN = 100; // as many as the page is told of
const FEW = 5;

const HELD = ["held", "stopped", "paused", "rate_limited", "full"];

const stateWords = (name: string): string => name.replace("_", " ");

/** Those that something holds, in short. */
export function HeldGroups({ queue, detail }: { queue: string; detail: Detail | null }): JSX.Element | null {
  const groups = detail?.groups?.groups ?? [];
  const counts = Object.entries(detail?.flow?.groups ?? {}).filter(([, n]) => n > 0);
  if (counts.length === 0) return null;
  const held = groups.filter((each) => HELD.includes(each.state)).slice(0, FEW);
  return (
    <Section title="Groups" aside={<a href={linkTo(queue, "groups")}>All of them</a>}>
      <p class="dim">{counts.map(([name, n]) => `${count(n)} ${stateWords(name)}`).join(", ")}</p>
      {held.length > 0 && (
        <ul class="lines">
          {held.map((each) => (
            <li key={each.group}>
              <b class="break">{each.group}</b>
              <span class={`mark ${each.state}`}>{stateWords(each.state)}</span>
              <Why queue={queue} group={each} />
            </li>
          ))}
        </ul>
      )}
    </Section>
  );
}

function Why({ queue, group }: { queue: string; group: Group }): JSX.Element | null {
  const now = useClock();
  if (!group.why) return null;
  return (
    <span class="under break">
      {group.why}
      {group.opens_at && unix(group.opens_at) > now && ` (in ${duration(unix(group.opens_at) - now)})`}
      {group.waits_for && (
        <>
          {" "}
          <a href={linkTo(queue, "job", group.waits_for)}>Show that job</a>
        </>
      )}
    </span>
  );
}

export function Groups({ queue, detail, ask }: { queue: string; detail: Detail | null; ask: Ask }): JSX.Element {
  const live = useLive();
  const [wanted, setWanted] = useState("");
  const [editing, edit] = useState<string | null>(null);
  if (!detail?.groups) return <p class="empty">Reading…</p>;
  const told = detail.groups.groups;
  const own = detail.stats.groups;
  const counts = detail.flow?.groups ?? {};
  const there = new Map<string, Group | null>(told.map((each) => [each.group, each]));
  for (const name of Object.keys(own)) if (!there.has(name)) there.set(name, null);
  const text = wanted.trim();
  const names = [...there.keys()].filter((name) => name.toLowerCase().includes(text.toLowerCase()));
  if (text && !there.has(text)) names.push(text);
  const may = live.may("configure");
  const steer = (group: string, paused: boolean): void => {
    void done(
      state.change(queue, { groups: { [group]: { paused } } }),
      paused ? `Group ${group} waits.` : `Group ${group} goes on.`,
    );
  };
  return (
    <>
      <div class="summary">
        <p>
          {Object.entries(counts).some(([, n]) => n > 0)
            ? Object.entries(counts)
                .filter(([, n]) => n > 0)
                .map(([name, n]) => `${count(n)} ${stateWords(name)}`)
                .join(", ")
            : "No group runs, and nothing holds one."}
        </p>
        <label class="inline">
          Group
          <input type="text" value={wanted} autocomplete="off" spellcheck={false} onInput={(event) => setWanted(event.currentTarget.value)} />
        </label>
      </div>
      {names.length === 0 ? (
        <Empty>
          Groups that neither run nor are held are not listed, unless they have limits of their own. Write the name of one to
          see its jobs, to pause it or to limit it.
        </Empty>
      ) : (
        <table class="stack">
          <thead>
            <tr>
              <th>Group</th>
              <th>State</th>
              <th class="number">Running</th>
              <th class="number">Waiting</th>
              <th>Of its own</th>
              <th>
                <span class="hidden">Change</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {names.map((name) => {
              const group = there.get(name) ?? null;
              const limits = own[name] ?? {};
              const held = group?.state === "paused" || group?.state === "stopped";
              return (
                <tr key={name}>
                  <th scope="row" class="break">
                    <a class="row" href={`${linkTo(queue, "jobs")}?group=${encodeURIComponent(name)}`}>
                      {name}
                    </a>
                  </th>
                  <td>
                    {group ? <span class={`mark ${group.state}`}>{stateWords(group.state)}</span> : <span class="dim">rests</span>}
                    {group && <Why queue={queue} group={group} />}
                  </td>
                  <td class="number" data-name="running">
                    {group ? count(group.running) : <span class="dim">0</span>}
                    {typeof limits["running"] === "number" && limits["running"] > 0 && <span class="dim"> of {count(limits["running"])}</span>}
                  </td>
                  <td class="number" data-name="waiting">
                    {group ? count(group.waiting) : <span class="dim">–</span>}
                  </td>
                  <td data-name="own" class="dim">
                    {OF_GROUPS.filter((field) => limits[field.name] != null)
                      .map((field) => `${field.text.toLowerCase()} ${shown(field, limits[field.name])}`)
                      .join(", ") || "–"}
                  </td>
                  <td class="acts">
                    <div class="buttons">
                      {may && (
                        <button type="button" class="small" onClick={() => steer(name, !held)}>
                          {held ? "Resume" : "Pause"}
                        </button>
                      )}
                      {may && (
                        <button type="button" class="small" onClick={() => edit(name)}>
                          Limits…
                        </button>
                      )}
                      {live.may("cancel_many") && (
                        <button type="button" class="small danger" onClick={() => void cancelMany(queue, { group: name }, `group ${name}`, ask)}>
                          Cancel…
                        </button>
                      )}
                    </div>
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      )}
      {told.length >= SHOWN && <p class="dim">The first {plural(told.length, "group")}. Write the name of another one.</p>}
      {editing !== null && <GroupLimits key={editing} queue={queue} group={editing} detail={detail} close={() => edit(null)} />}
    </>
  );
}

function GroupLimits({ queue, group, detail, close }: { queue: string; group: string; detail: Detail; close: () => void }): JSX.Element {
  const { texts, type } = useTexts();
  const now = detail.stats.groups[group] ?? {};
  const { settings } = detail.stats;
  const hint = (field: Field): string => `queue: ${shown(field, settings[`group_${field.name}`]) || "none"}`;
  return (
    <Dialog
      title={`Limits of ${group}`}
      verb="Save"
      ready={changedOf(OF_GROUPS, now, texts).length > 0}
      close={close}
      act={async () => {
        await state.change(queue, { groups: { [group]: wishOf(OF_GROUPS, now, texts, true) } });
        return `The limits of ${group} are changed.`;
      }}
    >
      <p class="dim">What is left empty is as the queue says.</p>
      <Fields fields={OF_GROUPS} now={now} texts={texts} type={type} may hint={hint} />
    </Dialog>
  );
}
