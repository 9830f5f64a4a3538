// The parts that pages are made of.

import type { ComponentChildren, JSX } from "preact";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { ago, count, moment, short } from "./format";
import { state, useClock, useLive } from "./live";

export function Ago({ at }: { at: string | number | null | undefined }): JSX.Element {
  const now = useClock();
  if (at == null) return <span class="dim">–</span>;
  const told = moment(at);
  return (
    <time dateTime={typeof at === "string" ? at : new Date(at * 1000).toISOString()} title={told}>
      {ago(at, now)}
    </time>
  );
}

const WORDS: Record<string, string> = {
  queued: "waiting",
  scheduled: "scheduled",
  processing: "running",
  failing: "retrying",
  completed: "completed",
  failed: "dead",
  cancelled: "cancelled",
};

export const stateWord = (name: string): string => WORDS[name] ?? name;

export function StateMark({ name }: { name: string }): JSX.Element {
  return <span class={`mark ${name}`}>{stateWord(name)}</span>;
}

/** A number that steps back where there is nothing of it. */
export function Num({ of, text = short(of) }: { of: number | null | undefined; text?: string }): JSX.Element {
  return of ? <>{text}</> : <span class="dim">{text}</span>;
}

/** A line of a few points; says nothing to those who do not see it, because the numbers stand beside it. */
export function Spark({ points, second }: { points: number[]; second?: boolean }): JSX.Element {
  const [width, height] = [88, 22];
  const name = second ? "spark second" : "spark";
  if (points.length < 2) return <svg class={name} width={width} height={height} aria-hidden="true" />;
  const most = Math.max(...points, 1);
  const x = (i: number): number => (i / (points.length - 1)) * (width - 2) + 1;
  const y = (n: number): number => height - 2 - (n / most) * (height - 4);
  const line = points.map((n, i) => `${x(i).toFixed(1)},${y(n).toFixed(1)}`).join(" ");
  return (
    <svg class={name} width={width} height={height} viewBox={`0 0 ${width} ${height}`} aria-hidden="true">
      <polygon points={`1,${height - 1} ${line} ${width - 1},${height - 1}`} />
      <polyline points={line} />
    </svg>
  );
}

export function Bar({ used, of, label, endless }: { used: number; of: number; label: string; endless?: boolean }): JSX.Element {
  const share = of > 0 ? Math.min(1, used / of) : 0;
  return (
    <div
      class={`bar ${share >= 1 && !endless ? "full" : ""}`}
      role="meter"
      aria-label={label}
      aria-valuenow={used}
      aria-valuemin={0}
      aria-valuemax={of}
      aria-valuetext={`${count(used)} of ${count(of)}`}
    >
      <span style={{ width: `${share * 100}%` }} />
    </div>
  );
}

export function Figure({
  name,
  value,
  note,
  bad,
}: {
  name: string;
  value: string;
  note?: ComponentChildren;
  bad?: boolean;
}): JSX.Element {
  return (
    <div class={`figure ${bad ? "bad" : ""}`}>
      <dt>{name}</dt>
      <dd>
        <strong>{value}</strong>
        {note != null && <span class="note">{note}</span>}
      </dd>
    </div>
  );
}

export function Section({
  title,
  aside,
  children,
}: {
  title: string;
  aside?: ComponentChildren;
  children: ComponentChildren;
}): JSX.Element {
  const id = useId();
  return (
    <section class="card" aria-labelledby={id}>
      <header>
        <h2 id={id}>{title}</h2>
        {aside != null && <div class="aside">{aside}</div>}
      </header>
      {children}
    </section>
  );
}

/** Where a row of links does not fit, the current one is in sight. */
export function showCurrent(nav: HTMLElement | null): void {
  const link = nav?.querySelector<HTMLElement>("[aria-current]");
  // scrollIntoView would be where the Tab key goes on from
  if (nav && link) nav.scrollLeft = link.offsetLeft - nav.offsetLeft - (nav.clientWidth - link.offsetWidth) / 2;
}

export function Empty({ children }: { children: ComponentChildren }): JSX.Element {
  return <p class="empty">{children}</p>;
}

export function Trouble({ text }: { text: string }): JSX.Element {
  return (
    <p class="trouble" role="alert">
      {text}
    </p>
  );
}

// ── Dialogs ──────────────────────────────────────────────────────────────────
/** A form in a dialog: what it does may take a while, and may be refused. */
export function Dialog({
  title,
  verb,
  danger,
  ready = true,
  act,
  close,
  children,
  more,
}: {
  title: string;
  verb: string;
  danger?: boolean | undefined;
  ready?: boolean;
  act: (progress: (text: string) => void) => Promise<string>; // answers what was done
  close: () => void;
  children: ComponentChildren;
  more?: ComponentChildren; // other buttons
}): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const [busy, setBusy] = useState(false);
  const [progress, setProgress] = useState("");
  const [error, setError] = useState("");
  const id = useId();
  useLayoutEffect(() => dialog.current?.showModal(), []); // before the next key is pressed
  const go = async (): Promise<void> => {
    setBusy(true);
    setError("");
    try {
      state.toast(await act(setProgress));
      dialog.current?.close();
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
      setBusy(false);
    }
  };
  return (
    <dialog
      ref={dialog}
      aria-labelledby={id}
      onClose={close}
      onCancel={(event) => {
        if (busy) event.preventDefault();
      }}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void go();
        }}
      >
        <h2 id={id}>{title}</h2>
        <div class="said">{children}</div>
        {progress && <p role="status">{progress}</p>}
        {error && <Trouble text={error} />}
        <div class="buttons">
          {more}
          <button type="button" disabled={busy} onClick={() => dialog.current?.close()}>
            Leave it
          </button>
          <button type="submit" class={danger ? "danger" : "primary"} disabled={busy || !ready}>
            {busy ? "Working…" : verb}
          </button>
        </div>
      </form>
    </dialog>
  );
}

export interface Question {
  title: string;
  text: ComponentChildren;
  verb: string; // what the button says, with the number
  danger?: boolean;
  act: (progress: (text: string) => void) => Promise<string>;
}

export type Ask = (question: Question) => void;

/** A dialog that asks before something is done, and what opens it. Whoever goes elsewhere is not asked there. */
export function useQuestion(where: string): [JSX.Element | null, Ask] {
  const [asked, set] = useState<{ question: Question; where: string } | null>(null);
  const ask: Ask = (question) => set({ question, where });
  if (asked?.where !== where) return [null, ask];
  const { text, ...rest } = asked.question;
  return [
    <Dialog {...rest} close={() => set(null)}>
      {text}
    </Dialog>,
    ask,
  ];
}

/** Do something at once, and say what was done or why it was not. */
export async function done(act: Promise<unknown>, said: string): Promise<boolean> {
  try {
    await act;
    state.toast(said);
    return true;
  } catch (error) {
    state.toast(error instanceof Error ? error.message : String(error), true);
    return false;
  }
}

export function Toasts(): JSX.Element {
  const live = useLive();
  return (
    <div class="toasts" role="status" aria-live="polite">
      {live.toasts.map((each) => (
        <div key={each.id} class={`toast ${each.bad ? "bad" : ""}`}>
          <span>{each.text}</span>
          <button type="button" class="quiet" aria-label="Dismiss" onClick={() => live.untoast(each.id)}>
            ×
          </button>
        </div>
      ))}
    </div>
  );
}
