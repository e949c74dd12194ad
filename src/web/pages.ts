import { html, raw } from 'hono/html';
import type { SecureHeadersVariables } from 'hono/secure-headers';
import { BOARD_PATH } from './board.js';
import type { ActorView, Overview, Reading } from './overview.js';
import { STYLE } from './style.js';

/** What the pages find in the context: the nonce that lets their style through the policy. */
export interface PageVariables {
  Variables: SecureHeadersVariables;
}

type Html = ReturnType<typeof html>;

const REFRESH_SECONDS = 5;

interface Frame {
  readonly nonce: string | undefined;
  readonly title: string;
  readonly refreshSeconds?: number;
  readonly body: Html;
}

const frame = ({ nonce, title, refreshSeconds, body }: Frame): Html =>
  html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta name="robots" content="noindex" />
        ${refreshSeconds === undefined ? '' : html`<meta http-equiv="refresh" content="${refreshSeconds}" />`}
        <title>${title}</title>
        <link rel="icon" href="data:," />
        <style nonce="${nonce ?? ''}">
          ${raw(STYLE)}
        </style>
      </head>
      <body>
        ${body}
      </body>
    </html>`;

/** The login form, with what was wrong about the last try. It knows nothing of what lies behind it. */
export function loginPage({ nonce, fault }: { nonce: string | undefined; fault?: string }): Html {
  const body = html`<form class="login card" method="post" action="/login">
    <h1>Twinbox</h1>
    ${fault === undefined ? '' : html`<p role="alert">${fault}</p>`}
    <label>User <input name="user" autocomplete="username" required autofocus /></label>
    <label>
      Password
      <input name="password" type="password" autocomplete="current-password" required />
    </label>
    <button>Log in</button>
  </form>`;
  return frame({ nonce, title: 'Log in · Twinbox', body });
}

export interface OverviewPage {
  readonly overview: Overview;
  readonly user: string;
  readonly nonce: string | undefined;
}

/** Every hop: how much stands there, and how old the oldest of it is. */
export function overviewPage({ overview, user, nonce }: OverviewPage): Html {
  const at = overview.at.toISOString();
  const body = html`<header>
      <strong>Twinbox</strong>
      <nav><a href="/" aria-current="page">Overview</a> <a href="${BOARD_PATH}">Job board</a></nav>
      <form method="post" action="/logout">${user} <button>Log out</button></form>
    </header>
    <main>
      ${summary(notesOf(overview))}
      <h2>Outbox <small>Postgres: committed, not yet published</small></h2>
      <div class="card scroll">${outboxTable(overview)}</div>
      <h2>Actors <small>inbox (MongoDB) says what is done; jobs (Redis) are what runs next</small></h2>
      <div class="card scroll">${actorTable(overview)}</div>
      <footer>
        As of <time datetime="${at}">${at.slice(0, 19).replace('T', ' ')} UTC</time>; read anew every
        ${REFRESH_SECONDS} s.
      </footer>
    </main>`;
  return frame({ nonce, title: 'Overview · Twinbox', refreshSeconds: REFRESH_SECONDS, body });
}

/** What an operator should look at, in words; none when nothing has to be done. */
function notesOf({ outbox, actors }: Overview): string[] {
  const faults = [outbox, ...actors.flatMap(({ inbox, jobs }) => [inbox, jobs])].flatMap((reading) =>
    'fault' in reading ? [reading.fault] : [],
  );
  const parked =
    'value' in outbox && outbox.value.parked > 0 ? [`parked in the outbox: ${outbox.value.parked}`] : [];
  const ofActors = actors.flatMap(({ name, inbox, jobs }) => [
    ...('value' in inbox && inbox.value.dead > 0
      ? [`dead in the inbox of ${name}: ${inbox.value.dead}`]
      : []),
    ...('value' in jobs && jobs.value.paused ? [`the queue of ${name} is paused`] : []),
  ]);
  return [...new Set(faults), ...parked, ...ofActors];
}

const summary = (notes: readonly string[]): Html =>
  notes.length === 0
    ? html`<p class="sum card">All stores answer. Nothing is dead, parked or paused.</p>`
    : html`<div class="sum bad card" role="alert">
        <ul>
          ${notes.map((note) => html`<li>${note}</li>`)}
        </ul>
      </div>`;

const outboxTable = ({ outbox }: Overview): Html =>
  html`<table>
    <thead>
      <tr>
        <td></td>
        <th scope="col">pending</th>
        <th scope="col">oldest</th>
        <th scope="col">for later</th>
        <th scope="col">parked</th>
      </tr>
    </thead>
    <tbody>
      <tr>
        <th scope="row">outbox</th>
        ${cells(
          outbox,
          4,
          ({ due, retrying, andMore, oldestSeconds, delayed, parked }) =>
            html`<td>${andMore ? 'over ' : ''}${count(due + retrying)}</td>
              <td>${age(oldestSeconds)}</td>
              <td>${count(delayed)}</td>
              <td>${count(parked, 'bad')}</td>`,
        )}
      </tr>
    </tbody>
  </table>`;

const actorTable = ({ actors }: Overview): Html =>
  html`<table>
    <thead>
      <tr>
        <td></td>
        <th class="group edge" colspan="4" scope="colgroup">inbox</th>
        <th class="group edge" colspan="4" scope="colgroup">jobs</th>
      </tr>
      <tr>
        <th scope="col">actor</th>
        <th class="edge" scope="col">unfinished</th>
        <th scope="col">oldest</th>
        <th scope="col">processed</th>
        <th scope="col">dead</th>
        <th class="edge" scope="col">waiting</th>
        <th scope="col">delayed</th>
        <th scope="col">active</th>
        <th scope="col">failed</th>
      </tr>
    </thead>
    <tbody>
      ${actors.map(actorRow)}
    </tbody>
  </table>`;

const actorRow = ({ name, inbox, jobs }: ActorView): Html =>
  html`<tr>
    <th scope="row">
      <a href="${BOARD_PATH}/queue/${encodeURIComponent(name)}">${name}</a>
      ${'value' in jobs && jobs.value.paused ? html`<b class="warn">paused</b>` : ''}
    </th>
    ${cells(
      inbox,
      4,
      ({ unfinished, oldestUnfinishedSeconds, processed, dead }) =>
        html`<td class="edge">${count(unfinished)}</td>
          <td>${age(oldestUnfinishedSeconds)}</td>
          <td>${count(processed)}</td>
          <td>${count(dead, 'bad')}</td>`,
    )}
    ${cells(
      jobs,
      4,
      ({ waiting, delayed, active, failed }) =>
        html`<td class="edge">${count(waiting)}</td>
          <td>${count(delayed)}</td>
          <td>${count(active)}</td>
          <td>${count(failed, 'warn')}</td>`,
    )}
  </tr>`;

function cells<T>(reading: Reading<T>, columns: number, show: (value: T) => Html): Html {
  if ('value' in reading) return show(reading.value);
  // The reason stands in full at the top of the page; here it would stretch the table.
  const short = reading.fault.replace(/ \(.*$/s, '').slice(0, 80);
  return html`<td class="edge fault" colspan="${columns}" title="${reading.fault}">${short}</td>`;
}

const count = (many: number, alarm?: 'bad' | 'warn'): Html =>
  many === 0
    ? html`<span class="zero">0</span>`
    : html`<b class="${alarm ?? ''}">${many.toLocaleString('en-US')}</b>`;

/** `3 s`, `4 min`, `2 h`, `3 d`: as exact as one has to know it. */
function age(seconds: number | null): string {
  if (seconds === null) return '–';
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7_200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3_600)} h`;
  return `${Math.round(seconds / 86_400)} d`;
}
