// Cancelling all jobs that are like this or that, after their number was said.

import { call, queuePath } from "./api";
import { count, plural } from "./format";
import { state } from "./live";
import type { Ask } from "./ui";

export interface Which {
  kinds?: string[];
  group?: string;
  batch?: string;
  older_than?: number; // seconds since it was enqueued
}

interface Cancelled {
  cancelled: number;
  asked: number;
  waiting: number;
}

/** Count them, ask, and cancel them. `of` says whose they are. */
export async function cancelMany(queue: string, { older_than = 0, ...which }: Which, of: string, ask: Ask): Promise<void> {
  const until = Date.now() / 1000 - older_than;
  const run = (dry: boolean): Promise<Cancelled> =>
    call("POST", queuePath(queue, "/cancel"), { body: { ...which, dry_run: dry, enqueued_before: until } });
  try {
    const found = await run(true);
    const jobs = found.cancelled + found.waiting;
    const most = found.waiting ? "up to " : ""; // those that lie deep are counted when they are met
    if (jobs + found.asked === 0) {
      state.toast(`No job of ${of} waits or runs.`);
      return;
    }
    ask({
      title: `Cancel all jobs of ${of}?`,
      text: (
        <p>
          {most && "Up to "}
          {plural(jobs, "job")} will be cancelled for good
          {found.asked ? `, and the workers of ${plural(found.asked, "running job")} are asked to stop` : ""}. Jobs that
          are enqueued from now on stay.
        </p>
      ),
      verb: `Cancel ${most}${plural(jobs + found.asked, "job")}`,
      danger: true,
      act: async () => {
        const did = await run(false);
        const jobs = plural(did.cancelled + did.waiting, "job");
        return `${did.waiting ? `Up to ${jobs}` : jobs} cancelled, ${count(did.asked)} asked to stop.`;
      },
    });
  } catch (error) {
    state.toast(error instanceof Error ? error.message : String(error), true);
  }
}
