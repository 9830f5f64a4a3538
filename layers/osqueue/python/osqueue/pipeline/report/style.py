"""The page's style sheet and its one small script, as text: a report is one file.

Colours are those of Okabe and Ito, darkened or lightened until they stand out from the paper: blue against orange and
vermilion, which colour-blind readers tell apart, and never colour alone. No ``<`` or ``&`` in
either, so that the page stays well-formed XML.
"""

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fcfbf9; --ink: #1c2430; --soft: #596273; --rule: #dfe1e4; --faint: #ecedef; --link: #0b5c94;
  --arrived: #a9c3dc; --completed: #0b5c94; --depth: #c9b7dd; --depth-line: #6d4aa0;
  --p50: #0b5c94; --p95: #c27a00; --p99: #b5420c; --bar: #5b94c2; --late: #d9641e;
  --retried: #e9b44c; --stalled: #8d99a8; --failed: #c0430f; --load: #a5d3c5; --load-line: #0a7a5c;
  --good: #0a7a5c; --bad: #b5420c;
  --h0: #eff1f2; --h1: #dbe6ee; --h2: #bfd5e5; --h3: #9dc0d9; --h4: #78a8cb; --h5: #548eba; --h6: #3673a5;
  --h7: #1d588a; --h8: #0b3c69;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #12161c; --ink: #e6e9ee; --soft: #9aa5b5; --rule: #2b323c; --faint: #1f252d; --link: #74b9ea;
    --arrived: #2f4c68; --completed: #6cb8ee; --depth: #45366a; --depth-line: #b59be0;
    --p50: #6cb8ee; --p95: #e9b44c; --p99: #f08a5b; --bar: #4e8cbd; --late: #e8793a;
    --retried: #d9a441; --stalled: #7a8696; --failed: #ef6a35; --load: #1d4f43; --load-line: #4cc3a0;
    --good: #4cc3a0; --bad: #f08a5b;
    --h0: #1a2028; --h1: #1c2d3d; --h2: #203c54; --h3: #264d6d; --h4: #2f6189; --h5: #3f7aa8; --h6: #5b97c4;
    --h7: #84b7dd; --h8: #bfdff5;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body {
  margin: 0 auto; padding: 0 1rem 3rem; max-width: 68rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue",
    "Liberation Sans", Arial, sans-serif;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere;
}
h1, h2, h3, h4, p, figure, dl, dd, ul, ol { margin: 0; padding: 0; }
ul, ol { list-style: none; }
a { color: var(--link); text-underline-offset: .15em; }
header { padding: 2.5rem 0 1rem; }
h1 { font-size: 1.9rem; line-height: 1.15; letter-spacing: -.02em; font-weight: 700; }
.when { color: var(--soft); font-size: .9rem; margin-bottom: .25rem; }
.answer { font-size: 1.2rem; line-height: 1.5; margin: 1.1rem 0 2rem; max-width: 44rem; text-wrap: pretty; }
.good { color: var(--good); } .bad { color: var(--bad); }
.tiles { display: grid; grid-template-columns: repeat(4, minmax(0, 1fr)); gap: 1.4rem 1.5rem; }
.tiles div { border-top: 2px solid var(--ink); padding-top: .45rem; }
.tiles dt { font-size: .8rem; color: var(--soft); }
.tiles dd b { display: block; font-size: 1.55rem; line-height: 1.25; letter-spacing: -.015em; font-weight: 650;
  overflow-wrap: normal; }
.tiles dd span { display: block; font-size: .8rem; color: var(--soft); line-height: 1.35; }
section { padding-top: 3.5rem; }
h2 { font-size: 1.5rem; line-height: 1.2; letter-spacing: -.015em; margin-bottom: 1.25rem; }
h3 { font-size: .85rem; font-weight: 600; color: var(--soft); border-top: 1px solid var(--rule);
  padding-top: .6rem; margin-top: 2.5rem; }
.queue h2 + h3 { margin-top: 0; }
.queue .tiles { margin-bottom: 2rem; }
.queue .tiles div { border-top-width: 1px; border-color: var(--rule); }
.queue .tiles dd b { font-size: 1.25rem; }
h4 { font-size: 1.05rem; font-weight: 650; line-height: 1.3; }
figure { padding-top: 1.5rem; min-width: 0; }
figcaption { margin-bottom: .4rem; }
.remark, .nothing { font-size: .9rem; color: var(--soft); max-width: 44rem; }
.pair { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 0 2.5rem; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; font-size: .8rem; margin-top: .2rem; }
.legend li { display: flex; align-items: center; gap: .4rem; }
.swatch { width: 1rem; height: .65rem; border-radius: 1px; }
.arrived-fill { background: var(--arrived); } .completed-stroke { background: var(--completed); height: 3px; }
.p50-stroke { background: var(--p50); height: 3px; } .p95-stroke { background: var(--p95); height: 3px; }
.p99-stroke { height: 0; border-top: 3px dotted var(--p99); }
.retried-fill { background: var(--retried); } .stalled-fill { background: var(--stalled); }
.failed-fill { background: var(--failed); }
.plot { display: block; overflow: visible; }
.plot text { font-size: 11.5px; fill: var(--soft); paint-order: stroke; stroke: var(--paper);
  stroke-width: 3px; stroke-linejoin: round; }
.plot .note { fill: var(--ink); font-weight: 600; }
.grid { stroke: var(--rule); } .axis { stroke: var(--soft); }
.target { stroke: var(--ink); stroke-dasharray: 4 3; } .mark { stroke: var(--soft); stroke-dasharray: 1.5 2.5; }
path { fill: none; stroke-linejoin: round; stroke-linecap: round; }
.arrived-area { fill: var(--arrived); } .completed-line { stroke: var(--completed); stroke-width: 1.6; }
.depth-area { fill: var(--depth); } .depth-line { stroke: var(--depth-line); stroke-width: 1.4; }
.p50-line { stroke: var(--p50); stroke-width: 2; } .p95-line { stroke: var(--p95); stroke-width: 1.8; }
.p99-line { stroke: var(--p99); stroke-width: 1.6; stroke-dasharray: .1 3.6; }
.retried-area { fill: var(--retried); } .stalled-area { fill: var(--stalled); } .failed-area { fill: var(--failed); }
.load-area { fill: var(--load); } .load-line { stroke: var(--load-line); stroke-width: 1.2; }
.bar { fill: var(--bar); } .late-bar { fill: var(--late); }
.bar, .late-bar { stroke: var(--paper); stroke-width: 1; }
.bar:hover, .late-bar:hover, .cell:hover { fill-opacity: .75; }
.hits rect { fill: transparent; width: 1px; height: 1px; } .hits rect:hover { fill: var(--ink); fill-opacity: .1; }
.cell { stroke: var(--paper); stroke-width: 2; }
.heat-none { fill: none; stroke: none; }
.heat-0 { fill: var(--h0); background: var(--h0); } .heat-1 { fill: var(--h1); background: var(--h1); }
.heat-2 { fill: var(--h2); background: var(--h2); } .heat-3 { fill: var(--h3); background: var(--h3); }
.heat-4 { fill: var(--h4); background: var(--h4); } .heat-5 { fill: var(--h5); background: var(--h5); }
.heat-6 { fill: var(--h6); background: var(--h6); } .heat-7 { fill: var(--h7); background: var(--h7); }
.heat-8 { fill: var(--h8); background: var(--h8); }
.ramp { display: flex; align-items: center; gap: 2px; font-size: .8rem; color: var(--soft); margin-top: .4rem; }
.ramp .heat { width: 1.1rem; height: .7rem; } .ramp .heat:first-child { margin-left: .4rem; }
.ramp .heat:last-child { margin-right: .4rem; }
.ramp .limit { margin: 0 .25rem; }
.readout { font-size: .8rem; float: right; max-width: calc(100% - 10rem); color: var(--ink); }
details { font-size: .85rem; margin-top: .1rem; }
summary { cursor: pointer; color: var(--soft); width: max-content; }
summary:hover { color: var(--link); }
.scroll { overflow: auto; max-height: 24rem; margin-top: .5rem; }
section > .scroll, figcaption + .scroll { max-height: none; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-size: .85rem; }
thead th { position: sticky; top: 0; background: var(--paper); }
details table { width: auto; min-width: min(100%, 30rem); }
caption { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
th, td { padding: .3rem .75rem .3rem 0; text-align: right; font-weight: 400; white-space: nowrap;
  border-bottom: 1px solid var(--faint); }
td:last-child, th:last-child { padding-right: 0; }
thead th { color: var(--soft); border-color: var(--rule); font-size: .8rem; }
th:first-child { text-align: left; }
tbody th { max-width: 18rem; overflow: hidden; text-overflow: ellipsis; }
.queues td { vertical-align: middle; } .queues td:nth-last-child(2) { width: 26%; min-width: 7rem; }
.errors { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 1.25rem 2.5rem; margin-top: .4rem; }
.errors b { font-size: 1.15rem; }
.kind { font-weight: 600; }
code { font: .8rem ui-monospace, SFMono-Regular, Menlo, "Liberation Mono", monospace; color: var(--soft); }
.weight { display: block; height: 4px; background: var(--late); margin: .15rem 0 .3rem; min-width: 2px; }
.example { font: .8rem/1.45 ui-monospace, SFMono-Regular, Menlo, "Liberation Mono", monospace;
  white-space: pre-wrap; }
.facts { font-size: .8rem; color: var(--soft); font-weight: 400; }
.lanes li { display: grid; grid-template-columns: minmax(0, 13rem) minmax(0, 1fr); gap: 0 1.25rem;
  padding: .35rem 0; align-items: center; }
.lanes .who { font-size: .85rem; font-weight: 600; } .lanes .facts { grid-row: 2; line-height: 1.3; }
.lanes .plot { grid-row: 1 / 3; grid-column: 2; } .lanes li.facts { display: block; }
footer { margin-top: 3.5rem; border-top: 1px solid var(--rule); padding-top: .75rem; font-size: .8rem;
  color: var(--soft); max-width: none; }
@media (max-width: 44rem) {
  header { padding-top: 1.5rem; }
  h1 { font-size: 1.6rem; } .answer { font-size: 1.08rem; }
  .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 1.1rem 1rem; }
  .tiles dd b { font-size: 1.3rem; }
  .pair, .errors { grid-template-columns: minmax(0, 1fr); }
  .odd { display: none; }
  figcaption + .scroll th, .queues th { white-space: normal; } td, thead th { overflow-wrap: normal; }
  .queues :is(th, td):nth-last-child(-n + 2) { display: none; } .queues :is(th, td) { padding-right: .4rem; }
  th, td { padding-right: .55rem; font-size: .8rem; } tbody th { max-width: 8.5rem; }
  .readout { float: none; max-width: none; min-height: 1.2rem; }
  .lanes li { grid-template-columns: minmax(0, 1fr); } .lanes .facts, .lanes .plot { grid-row: auto; grid-column: 1; }
}
@media print { details, .readout { display: none; } figure { break-inside: avoid; } }
"""

# Touch screens have no tooltips: what is pointed at or tapped is repeated below its plot.
SCRIPT = """
for (const kind of ["pointerover", "pointerdown"])
  document.addEventListener(kind, event => {
    const text = event.target.closest(".plot")?.contains(event.target) ? event.target.querySelector("title") : null;
    const line = event.target.closest("figure")?.querySelector(".readout");
    if (line) line.textContent = event.target.closest(".plot") ? text?.textContent ?? "" : "";
  });
"""
