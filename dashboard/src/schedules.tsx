// The schedules of a queue.

import type { JSX } from "preact";
import { call, queuePath, segment } from "./api";
import { count, duration } from "./format";
import { useLive } from "./live";
import type { Detail, Schedule } from "./types";
import { Ago, done, Empty, type Ask } from "./ui";

export function Schedules({ queue, detail, ask }: { queue: string; detail: Detail | null; ask: Ask }): JSX.Element {
  const live = useLive();
  const schedules = detail?.schedules?.schedules;
  if (!schedules) return <p class="empty">Reading…</p>;
  if (schedules.length === 0) return <Empty>No schedules. “osqueue cron” and q.schedule() add them.</Empty>;
  const path = (each: Schedule, rest = ""): string => queuePath(queue, `/schedules/${segment(each.name)}${rest}`);
  return (
    <>
      <table class="stack">
        <thead>
          <tr>
            <th>Schedule</th>
            <th>When</th>
            <th class="number">Next</th>
            <th class="number">Jobs of it</th>
            <th>
              <span class="hidden">Change</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {schedules.map((each) => (
            <tr key={each.name}>
              <th scope="row" class="break">
                {each.name}
                {each.paused && <span class="mark paused">paused</span>}
              </th>
              <td class="mono">{each.cron ? `${each.cron} ${each.tz}` : `every ${duration(each.every)}`}</td>
              <td class="number" data-name="next">{each.next_at ? <Ago at={each.next_at} /> : <span class="dim">–</span>}</td>
              <td class="number" data-name="jobs">{count(each.living)}</td>
              <td class="acts">
                <div class="buttons">
                {live.may("change_schedule") && (
                  <button
                    type="button"
                    class="small"
                    onClick={() =>
                      void done(
                        call("PATCH", path(each), { body: { paused: !each.paused } }),
                        each.paused ? `${each.name} goes on.` : `${each.name} rests.`,
                      )
                    }
                  >
                    {each.paused ? "Resume" : "Pause"}
                  </button>
                )}
                {live.may("run_schedule") && (
                  <button
                    type="button"
                    class="small"
                    onClick={() =>
                      ask({
                        title: `Run ${each.name} now?`,
                        text: <p>1 job of the schedule is enqueued, beside those of its times.</p>,
                        verb: "Enqueue 1 job",
                        act: async () => {
                          await call("POST", path(each, "/run"));
                          return `1 job of ${each.name} is enqueued.`;
                        },
                      })
                    }
                  >
                    Run now
                  </button>
                )}
                </div>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}
