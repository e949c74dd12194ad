/** The one style sheet of the pages, in the document itself: light and dark by the system's choice. */
export const STYLE = `
:root { color-scheme: light dark; --bg: #f6f7f9; --card: #fff; --text: #1b2430; --soft: #5c6877; --line: #dde2e9;
  --link: #1a5fb4; --bad: #b3261e; --bad-bg: #fdecea; --warn: #8a5300; --good: #1b6e3c; --mark: #1a5fb4; }
@media (prefers-color-scheme: dark) { :root { --bg: #12161c; --card: #1a2029; --text: #e4e9f0; --soft: #95a1b2;
  --line: #2c3542; --link: #86b7f7; --bad: #ff9d94; --bad-bg: #3a1d1c; --warn: #efbb6c; --good: #7fd49f; --mark: #4d8fe0; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--text); font: 15px/1.45 system-ui, sans-serif; }
a { color: var(--link); }
header { display: flex; flex-wrap: wrap; align-items: center; gap: .4rem 1.2rem; padding: .6rem 1.2rem;
  background: var(--card); border-bottom: 1px solid var(--line); }
header strong { font-size: 1.05rem; border-left: .3rem solid var(--mark); padding-left: .5rem; }
header nav { display: flex; gap: 1rem; flex: 1; }
header form { display: flex; align-items: center; gap: .6rem; color: var(--soft); }
main { max-width: 70rem; margin: 0 auto; padding: 1rem 1.2rem 2rem; }
h2 { font-size: 1rem; margin: 1.4rem 0 .5rem; } h2 small { font-weight: normal; color: var(--soft); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
.scroll { overflow-x: auto; }
.sum { padding: .7rem 1rem; border-left: .3rem solid var(--good); margin: 0; }
.sum.bad { border-left-color: var(--bad); background: var(--bad-bg); }
.sum ul { margin: 0; padding-left: 1.1rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .45rem .8rem; text-align: right; white-space: nowrap; }
th { font-weight: 500; color: var(--soft); } thead tr:last-child > * { border-bottom: 1px solid var(--line); }
tbody tr + tr > * { border-top: 1px solid var(--line); }
th:first-child { text-align: left; } tbody th { color: var(--text); }
thead .group { text-align: left; padding-bottom: 0; font-size: .85rem; } .edge { border-left: 1px solid var(--line); }
td.fault { text-align: left; color: var(--bad); } .bad { color: var(--bad); } .warn { color: var(--warn); } .zero { color: var(--soft); }
b.bad, b.warn { font-weight: 600; }
footer { color: var(--soft); font-size: .85rem; margin-top: 1rem; }
button { font: inherit; padding: .35rem .8rem; border: 1px solid var(--line); border-radius: 6px; background: var(--card);
  color: var(--text); cursor: pointer; }
:focus-visible { outline: 2px solid var(--mark); outline-offset: 2px; }
.login { max-width: 21rem; margin: 14vh auto 0; padding: 1.5rem; }
.login h1 { font-size: 1.2rem; margin: 0 0 1rem; border-left: .3rem solid var(--mark); padding-left: .6rem; }
.login label { display: block; margin-bottom: .8rem; color: var(--soft); }
.login input { display: block; width: 100%; margin-top: .2rem; padding: .5rem .6rem; font: inherit; color: var(--text);
  background: var(--bg); border: 1px solid var(--line); border-radius: 6px; }
.login button { width: 100%; padding: .55rem; background: var(--mark); border-color: var(--mark); color: #fff; }
.login p { margin: 0 0 .8rem; padding: .5rem .7rem; background: var(--bad-bg); color: var(--bad); border-radius: 6px; }
`;
