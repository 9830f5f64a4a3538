// The API: calls with the caller's token, and the live stream.

const TOKEN = "osqueue.token";
const CALL_MS = 30_000;
const SILENCE_MS = 25_000; // the server says something every ten seconds
const PAUSES_MS = [500, 1_000, 2_000, 4_000];

export class Failure extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly code: string,
  ) {
    super(message);
  }
}

export const token = {
  get: (): string | null => sessionStorage.getItem(TOKEN),
  set: (text: string): void => sessionStorage.setItem(TOKEN, text),
  drop: (): void => sessionStorage.removeItem(TOKEN),
};

export const events = new EventTarget(); // "unauthorized"

function headers(): Record<string, string> {
  const text = token.get();
  return text ? { authorization: `Bearer ${text}` } : {};
}

async function failed(response: Response): Promise<Failure> {
  let message = `the server answered ${response.status}.`;
  let code = "";
  try {
    const told = (await response.json()) as { error?: { message?: string; code?: string } };
    message = told.error?.message ?? message;
    code = told.error?.code ?? "";
  } catch {
    // what is no JSON says nothing
  }
  if (response.status === 401) events.dispatchEvent(new Event("unauthorized"));
  return new Failure(message, response.status, code);
}

export type Query = Record<string, string | number | string[] | null | undefined>;

export function search(query: Query): string {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each != null && each !== "") found.append(name, String(each));
    }
  }
  const text = found.toString();
  return text ? `?${text}` : "";
}

/** An id in a path: what might be taken for something else travels as ~ and its base64url. */
export function segment(text: string): string {
  if (/^[A-Za-z0-9._-]+$/.test(text) && /[^.]/.test(text)) return text;
  const binary = Array.from(new TextEncoder().encode(text), (each) => String.fromCharCode(each)).join("");
  return `~${btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}`;
}

export async function call<T>(method: string, path: string, options: { query?: Query; body?: unknown } = {}): Promise<T> {
  let response: Response;
  try {
    response = await fetch(path + search(options.query ?? {}), {
      method,
      headers: options.body === undefined ? headers() : { ...headers(), "content-type": "application/json" },
      body: options.body === undefined ? null : JSON.stringify(options.body),
      signal: AbortSignal.timeout(CALL_MS),
      cache: "no-store",
    });
  } catch {
    throw new Failure("The server does not answer.", 0, "unreachable");
  }
  if (!response.ok && response.status !== 202) throw await failed(response);
  const text = await response.text();
  return (text ? JSON.parse(text) : null) as T;
}

export const queuePath = (queue: string, rest = ""): string => `v1/queues/${encodeURIComponent(queue)}${rest}`;
export const jobPath = (queue: string, id: string, rest = ""): string => queuePath(queue, `/jobs/${segment(id)}${rest}`);

export interface Listener {
  message(name: string, data: unknown): void;
  connected(): void;
  lost(reason: string): void;
}

/** Follow the live stream until told to stop; connects again, and again. */
export function follow(queue: string | null, listener: Listener): () => void {
  let stopped = false;
  let ending: AbortController | null = null;
  let wake: () => void = () => undefined;

  const pause = (ms: number): Promise<void> =>
    new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });

  const once = async (): Promise<void> => {
    ending = new AbortController();
    let silence = setTimeout(() => ending?.abort(), SILENCE_MS);
    try {
      const response = await fetch(`dashboard/live${search({ queue })}`, {
        headers: headers(),
        signal: ending.signal,
        cache: "no-store",
      });
      if (!response.ok || !response.body) throw await failed(response);
      listener.connected();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(silence);
        silence = setTimeout(() => ending?.abort(), SILENCE_MS);
        const parts = (rest + value).split("\n\n");
        rest = parts.pop() ?? "";
        for (const part of parts) {
          const name = /^event: (.*)$/m.exec(part)?.[1];
          const data = /^data: (.*)$/m.exec(part)?.[1];
          if (name && data) listener.message(name, JSON.parse(data));
        }
      }
    } finally {
      clearTimeout(silence);
    }
  };

  void (async () => {
    let failures = 0;
    while (!stopped) {
      const began = Date.now();
      let ended = true; // as streams do that have become old
      try {
        await once();
      } catch (error) {
        if (stopped) return;
        ended = false;
        if (error instanceof Failure && error.status === 401) return;
        listener.lost(error instanceof Failure ? error.message : "The server does not answer.");
      }
      failures = Date.now() - began > 10_000 ? 0 : failures + 1;
      if (!stopped) await pause(ended && failures < 2 ? 50 : (PAUSES_MS[Math.min(failures, PAUSES_MS.length) - 1] ?? 500));
    }
  })();

  return () => {
    stopped = true;
    ending?.abort();
    wake();
  };
}
