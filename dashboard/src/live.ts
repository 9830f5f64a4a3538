// What the page knows, and the hooks by which its parts hear of it.

import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "preact/hooks";
import { call, events, Failure, follow, queuePath } from "./api";
import type { Bill, Detail, Me, Row, Sample, Stats } from "./types";

const HIDDEN_MS = 20_000; // after which a page that nobody sees lets go of its stream
const SAMPLES_MAX = 400;
const SAMPLE_S = 5;

export interface Toast {
  id: number;
  text: string;
  bad: boolean;
}

class State extends EventTarget {
  me: Me | null = null;
  locked = false; // a token is asked for
  rows = new Map<string, Row>();
  names: string[] | null = null; // null: not known yet
  listed = false;
  bill: Bill | null = null;
  trouble: string | null = null; // of the store, as the server says
  lost: string | null = null; // why there is no stream
  heard = 0; // when the server said something, by the page's clock
  detail: Detail | null = null;
  toasts: Toast[] = [];

  private stop: (() => void) | null = null;
  private queue: string | null = null;
  private hiding = 0;
  private toastId = 0;
  private failing = 0;
  private listing: string[] = []; // names, as far as the server knows them

  told(): void {
    this.dispatchEvent(new Event("told"));
  }

  may(operation: string): boolean {
    return this.me?.operations.includes(operation) ?? false;
  }

  /** Learn who looks, then follow. */
  async begin(): Promise<void> {
    try {
      const me = await call<Me>("GET", "dashboard/me");
      if (this.me && this.me.name !== me.name) return location.reload(); // what is shown is another's
      this.me = me;
      this.locked = false;
      this.lost = null;
      this.watch(this.queue, true);
    } catch (error) {
      if (error instanceof Failure && error.status === 401) this.locked = true;
      else {
        this.lost = error instanceof Error ? error.message : String(error);
        window.clearTimeout(this.failing);
        this.failing = window.setTimeout(() => void this.begin(), 2_000);
      }
    }
    this.told();
  }

  /** Follow the list, and this queue in detail. */
  watch(queue: string | null, again = false): void {
    if (queue === this.queue && this.stop && !again) return;
    if (queue !== this.queue) this.detail = null;
    this.queue = queue;
    this.stop?.();
    this.stop = null;
    if (!this.me || this.locked || document.hidden) return;
    this.stop = follow(queue, {
      connected: () => {
        this.lost = null;
        this.told();
      },
      lost: (reason) => {
        this.lost = reason;
        this.told();
      },
      message: (name, data) => {
        this.heard = Date.now();
        if (name === "queues") this.hear(data as Parameters<State["hear"]>[0]);
        if (name === "queue") this.hearOf(data as Detail);
        this.told();
      },
    });
  }

  private hear(told: {
    queues: Row[];
    names?: string[];
    listed: boolean;
    trouble: string | null;
    bill: Bill | null;
  }): void {
    for (const row of told.queues) this.rows.set(row.queue, row);
    this.listing = told.names ?? this.listing;
    if (told.listed) {
      // A server that has just begun knows few names: those that it does not know yet stay.
      this.listed = true;
      this.names = this.listing;
      const there = new Set(this.names);
      for (const name of this.rows.keys()) if (!there.has(name)) this.rows.delete(name);
    }
    this.trouble = told.trouble;
    this.bill = told.bill;
  }

  private hearOf(told: Detail): void {
    if (told.queue !== this.queue) return;
    const before = this.detail;
    const samples: Sample[] = [...(before?.samples ?? [])];
    for (const each of told.samples) {
      if (each[0] <= (samples.at(-1)?.[0] ?? 0)) continue;
      if (each[0] - (samples.at(-2)?.[0] ?? 0) < SAMPLE_S) samples.pop(); // as the server does: rates of a moment jump
      samples.push(each);
    }
    this.detail = { ...before, ...told, samples: samples.slice(-SAMPLES_MAX) }; // a part that is not told now stays
  }

  /** Change a queue, and show at once what it is like now. */
  async change(queue: string, wish: Record<string, unknown>): Promise<void> {
    const stats = await call<Stats>("PATCH", queuePath(queue), { body: wish });
    if (this.detail?.queue === queue) this.detail = { ...this.detail, stats };
    this.told();
  }

  visible(): void {
    window.clearTimeout(this.hiding);
    if (document.hidden) {
      this.hiding = window.setTimeout(() => {
        this.stop?.();
        this.stop = null;
      }, HIDDEN_MS);
    } else if (!this.stop) this.watch(this.queue, true);
  }

  toast(text: string, bad = false): void {
    const id = ++this.toastId;
    this.toasts = [...this.toasts, { id, text, bad }];
    this.told();
    window.setTimeout(() => this.untoast(id), bad ? 12_000 : 6_000);
  }

  untoast(id: number): void {
    this.toasts = this.toasts.filter((each) => each.id !== id);
    this.told();
  }
}

export const state = new State();

events.addEventListener("unauthorized", () => {
  state.locked = true;
  state.told();
});
document.addEventListener("visibilitychange", () => state.visible());

/** Draw again whenever anything is told. */
export function useLive(): State {
  const [, draw] = useReducer<number, void>((n) => n + 1, 0);
  useLayoutEffect(() => {
    const listen = (): void => draw();
    state.addEventListener("told", listen);
    return () => state.removeEventListener("told", listen);
  }, []);
  return state;
}

/** Draw again every second, for what says how long ago something was. */
export function useClock(ms = 1_000): number {
  const [now, set] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => set(Date.now()), ms);
    return () => clearInterval(timer);
  }, [ms]);
  return now / 1000;
}

// ── Where the page is ────────────────────────────────────────────────────────
export interface Place {
  queue: string | null;
  tab: string;
  job: string | null;
  query: URLSearchParams;
}

export function placeOf(hash: string): Place {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").map((each) => {
    try {
      return decodeURIComponent(each);
    } catch {
      return each;
    }
  });
  const queue = parts[0] === "q" && parts[1] ? parts[1] : null;
  return {
    queue,
    tab: queue ? parts[2] || "now" : "queues",
    job: queue && parts[2] === "job" ? (parts[3] ?? null) : null,
    query: new URLSearchParams(query),
  };
}

export const linkTo = (queue: string, tab = "", id?: string): string =>
  `#/q/${encodeURIComponent(queue)}${tab ? `/${tab}` : ""}${id === undefined ? "" : `/${encodeURIComponent(id)}`}`;

/** Go there in place of where the page is: at once, as far as the page's parts are told. */
export function goTo(hash: string): void {
  location.replace(hash);
  window.dispatchEvent(new Event("hashchange"));
}

export function usePlace(): Place {
  const [place, set] = useState(() => placeOf(location.hash));
  useLayoutEffect(() => {
    const listen = (): void => set(placeOf(location.hash));
    window.addEventListener("hashchange", listen);
    return () => window.removeEventListener("hashchange", listen);
  }, []);
  return place;
}

/**
 * What a call answers; asked for again when `key` changes, by `again`, and every `everyMs` while the page is seen, if
 * `stamp` is another than when it was asked last: what has not changed is not asked for, because that costs requests.
 */
export function useAsked<T>(
  ask: () => Promise<T>,
  key: string,
  everyMs = 0,
  stamp: unknown = undefined,
): { value: T | null; error: Failure | null; again: () => void; busy: boolean } {
  const [found, set] = useState<{ key: string; value: T | null; error: Failure | null }>({ key, value: null, error: null });
  const [round, again] = useReducer<number, void>((n) => n + 1, 0);
  const [busy, setBusy] = useState(true);
  const now = useRef(stamp);
  const asked = useRef(stamp);
  now.current = stamp;
  useEffect(() => {
    let current = true;
    asked.current = now.current;
    setBusy(true);
    ask().then(
      (value) => {
        if (!current) return;
        set({ key, value, error: null });
        setBusy(false);
      },
      (error: unknown) => {
        if (!current) return;
        const failure = error instanceof Failure ? error : new Failure(String(error), 0, "");
        set((before) => ({ key, value: before.key === key ? before.value : null, error: failure }));
        setBusy(false);
      },
    );
    return () => {
      current = false;
    };
  }, [key, round]);
  useEffect(() => {
    if (!everyMs) return undefined;
    const timer = setInterval(() => {
      if (!document.hidden && (now.current === undefined || now.current !== asked.current)) again();
    }, everyMs);
    return () => clearInterval(timer);
  }, [everyMs, key]);
  const fresh = found.key === key;
  return { value: fresh ? found.value : null, error: fresh ? found.error : null, again: () => again(), busy };
}
