// The page: its frame, its keys, and which part is shown.

import { render, type JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { token } from "./api";
import { dollars, rate } from "./format";
import { linkTo, state, useClock, useLive, usePlace } from "./live";
import { QueuePage, TABS } from "./queue";
import { Queues } from "./queues";
import { Toasts, Trouble } from "./ui";
import "uplot/dist/uPlot.min.css";
import "./app.css";

const KEYS: [string, string][] = [
  ["/", "find a queue, or a job by its id"],
  ["j, k", "next line, line before"],
  ["Enter", "open it"],
  ["g", "all queues"],
  [`1 … ${TABS.length}`, "the tabs of a queue"],
  ["Esc", "leave a field or a dialog; up"],
  ["?", "these keys"],
];

function Page(): JSX.Element {
  const live = useLive();
  const place = usePlace();
  const [wanted, setWanted] = useState("");
  const [help, setHelp] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => live.watch(place.queue), [place.queue, live.me]);
  useEffect(() => {
    document.title = place.queue ? `${place.queue} · osqueue` : "osqueue";
  }, [place.queue]);
  useLayoutEffect(() => {
    const listen = (event: KeyboardEvent): void => keys(event, place.queue, field.current, () => setHelp(true));
    document.addEventListener("keydown", listen);
    return () => document.removeEventListener("keydown", listen);
  }, [place.queue]);

  const go = (): void => {
    const text = wanted.trim();
    if (!text) return;
    const names = [...live.rows.keys()];
    const found = names.find((name) => name === text) ?? names.find((name) => name.toLowerCase().includes(text.toLowerCase()));
    if (found) location.hash = linkTo(found);
    else if (place.queue) location.hash = linkTo(place.queue, "job", text);
    else return state.toast(`No queue has “${text}” in its name. To find a job, open its queue first.`, true);
    setWanted("");
    field.current?.blur();
  };

  if (live.locked && live.me === null) {
    return (
      <main>
        <Locked />
      </main>
    );
  }
  return (
    <>
      {live.locked && <Locked />}
      <a class="skip" href="#content" onClick={(event) => skip(event)}>
        Skip to the content
      </a>
      <header class="top">
        <a class="brand" href="#/" aria-label="osqueue, all queues">
          <Sign /> osqueue
        </a>
        {place.queue && (
          <nav aria-label="Where this is" class="crumbs">
            <a href="#/">All queues</a>
          </nav>
        )}
        <form
          role="search"
          aria-label="Find"
          onSubmit={(event) => {
            event.preventDefault();
            go();
          }}
        >
          <input
            ref={field}
            type="search"
            value={wanted}
            aria-label={place.queue ? "Find a queue, or a job by its id" : "Find a queue"}
            placeholder={place.queue ? "Queue or job id" : "Find a queue"}
            autocomplete="off"
            spellcheck={false}
            onInput={(event) => setWanted(event.currentTarget.value)}
          />
          <kbd aria-hidden="true">/</kbd>
        </form>
        <Liveness />
      </header>
      {live.lost !== null && (
        <div class="banner" role="alert">
          {live.lost} Trying again… What is shown may be old.
        </div>
      )}
      {live.lost === null && live.trouble !== null && (
        <div class="banner" role="alert">
          {live.trouble}
        </div>
      )}
      <div id="content" tabIndex={-1}>
        {place.queue ? <QueuePage key={place.queue} queue={place.queue} place={place} /> : <Queues wanted={wanted} />}
      </div>
      <footer>
        <Costs />
        <span class="break">{live.me?.place}</span>
        {live.me?.read_only && <span>read only</span>}
        {live.me?.name && (
          <span>
            {live.me.name}{" "}
            <button
              type="button"
              class="quiet"
              onClick={() => {
                token.drop();
                location.reload();
              }}
            >
              leave
            </button>
          </span>
        )}
        <span>times are UTC</span>
        <span>{live.me && `osqueue ${live.me.version}`}</span>
        <button type="button" class="quiet" onClick={() => setHelp(true)}>
          Keys <kbd aria-hidden="true">?</kbd>
        </button>
      </footer>
      {help && <Help close={() => setHelp(false)} />}
      <Toasts />
    </>
  );
}

function Sign(): JSX.Element {
  return (
    <svg width="16" height="16" viewBox="0 0 16 16" aria-hidden="true" class="sign">
      <rect x="1" y="2.5" width="14" height="3" rx="1.5" />
      <rect x="1" y="7" width="10" height="3" rx="1.5" opacity=".6" />
      <rect x="1" y="11.5" width="6" height="3" rx="1.5" opacity=".3" />
    </svg>
  );
}

function Liveness(): JSX.Element {
  const live = useLive();
  useClock(2_000);
  const name = live.lost !== null ? "lost" : live.listed ? "live" : "waiting";
  return (
    <span class={`liveness ${name}`}>
      <i aria-hidden="true" /> {name === "live" ? "live" : name === "lost" ? "no connection" : "connecting"}
    </span>
  );
}

/** What looking, and everything else this server does, asks of the store. */
function Costs(): JSX.Element | null {
  const { bill } = useLive();
  if (!bill) return null;
  const requests = Object.values(bill.per_minute).reduce((a, b) => a + b, 0);
  const title = Object.entries(bill.per_minute)
    .map(([kind, n]) => `${kind} ${n.toFixed(1)}`)
    .join(", ");
  return (
    <span class="costs" title={`a minute: ${title}`}>
      {requests >= 100 ? rate(requests / 60) : Math.round(requests)} {bill.of} requests{requests >= 100 ? "" : " a minute"}
      {bill.dollars_a_day !== undefined && `, ${dollars(bill.dollars_a_day)} a day`}
    </span>
  );
}

/** Before all of the page, which stays what it is, and goes on when its token is known again. */
function Locked(): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const known = token.get() !== null;
  const show = (): void => dialog.current?.showModal();
  useLayoutEffect(show, []);
  return (
    <dialog ref={dialog} class="locked" aria-label="Who looks" onCancel={(event) => event.preventDefault()} onClose={show}>
      <form
        class="card"
        onSubmit={(event) => {
          event.preventDefault();
          token.set(text.trim());
          void state.begin();
        }}
      >
        <h1>
          <Sign /> osqueue
        </h1>
        {known && <Trouble text="This token is not known here." />}
        <label>
          Token
          <input
            type="password"
            value={text}
            autocomplete="off"
            required
            autofocus
            onInput={(event) => setText(event.currentTarget.value)}
          />
        </label>
        <button type="submit" class="primary">
          Look
        </button>
        <p class="dim">It stays in this tab, and is forgotten when that closes.</p>
      </form>
    </dialog>
  );
}

function Help({ close }: { close: () => void }): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} aria-label="Keys" onClose={close}>
      <h2>Keys</h2>
      <dl class="facts">
        {KEYS.map(([key, what]) => (
          <Key key={key} name={key} what={what} />
        ))}
      </dl>
      <div class="buttons">
        <button type="button" onClick={() => dialog.current?.close()}>
          Close
        </button>
      </div>
    </dialog>
  );
}

function Key({ name, what }: { name: string; what: string }): JSX.Element {
  return (
    <>
      <dt>
        <kbd>{name}</kbd>
      </dt>
      <dd>{what}</dd>
    </>
  );
}

function skip(event: Event): void {
  event.preventDefault(); // the address says where the page is
  document.getElementById("content")?.focus();
}

function keys(event: KeyboardEvent, queue: string | null, field: HTMLInputElement | null, help: () => void): void {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const at = event.target as HTMLElement;
  if (at.matches("input, select, textarea")) {
    if (event.key === "Escape") at.blur();
    return;
  }
  const move = (step: number): void => {
    const rows = [...document.querySelectorAll<HTMLElement>("a.row, .death .quiet, .more button")];
    const now = rows.indexOf(document.activeElement as HTMLElement);
    rows[Math.max(0, Math.min(rows.length - 1, now < 0 ? 0 : now + step))]?.focus();
  };
  switch (event.key) {
    case "/":
      field?.focus();
      field?.select();
      break;
    case "?":
      help();
      break;
    case "g":
      location.hash = "#/";
      break;
    case "j":
      move(1);
      break;
    case "k":
      move(-1);
      break;
    case "Escape":
      if (location.hash.includes("/job/")) history.back();
      else location.hash = "#/";
      break;
    default: {
      const tab = TABS[Number(event.key) - 1]?.[0];
      if (!queue || tab === undefined) return;
      location.hash = linkTo(queue, tab === "now" ? "" : tab);
    }
  }
  event.preventDefault();
}

render(<Page />, document.getElementById("app")!);
void state.begin();
