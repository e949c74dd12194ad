import { readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { Hono } from 'hono';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createSessions } from '../../src/web/session.js';
import { killAll, startType } from '../support/processes.js';
import { freshStores, type Stores } from '../support/stores.js';
import { cookieOf, loginForm, PASSWORD, startConsole, USER, type TestConsole } from './console.js';
import { migrate, openStatsQueue, seedWaiting } from './seed.js';

const IDS = ['secret-id-1', 'secret-id-2', 'secret-id-3'];
const UI = dirname(createRequire(import.meta.url).resolve('@bull-board/ui/package.json'));
const STATIC = readdirSync(join(UI, 'dist/static'), { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map(
    (entry) => `/board/static/${join(entry.parentPath, entry.name).slice(join(UI, 'dist/static/').length)}`,
  );
const PAGES = [
  '/',
  '/board',
  '/board/',
  '/board/queue/stats',
  '/board/queue/stats/m-1',
  '/failed',
  '/nothing',
];
const ACTIONS = [
  ['PUT', '/board/api/queues/pause'],
  ['PUT', '/board/api/queues/stats/pause'],
  ['PUT', '/board/api/queues/stats/resume'],
  ['PUT', '/board/api/queues/stats/empty'],
  ['POST', '/board/api/queues/stats/add'],
  ['PATCH', '/board/api/queues/stats/m-1/update-data'],
  ['POST', '/logout'],
  ['POST', '/'],
  ['DELETE', '/board'],
  ['OPTIONS', '/board/api/queues'],
] as const;

let stores: Stores;
let board: TestConsole;

beforeAll(async () => {
  stores = await freshStores();
  await migrate(stores.env);
  await seedWaiting(stores.env, IDS);
  board = await startConsole(stores.env);
});
afterAll(async () => {
  await killAll();
  await stores.drop();
});

describe('O-01 the console is open to nobody', () => {
  test('O-01 without a session every page and file leads to the login and tells nothing', async () => {
    expect(STATIC.length).toBeGreaterThan(10);
    for (const path of [...PAGES, ...STATIC]) {
      const answer = await board.send('GET', path);
      expect([answer.status, answer.headers.get('location')], path).toEqual([302, '/login']);
      expect(answer.text, path).toBe('');
    }
  });

  test('O-01 without a session the data and every action are 401 and tell nothing', async () => {
    const { queue, close } = openStatsQueue(stores.env);
    const reads = ['/board/api/queues', '/board/api/queues/stats/x', '/board/api/redis/stats'];
    for (const [method, path] of [...reads.map((path) => ['GET', path] as const), ...ACTIONS]) {
      const answer = await board.send(method, path);
      expect([answer.status, answer.text], `${method} ${path}`).toEqual([401, '{"error":"log in first"}']);
    }
    expect([await queue.isPaused(), await queue.getWaitingCount()]).toEqual([false, IDS.length]);
    await close();
  });

  test('O-01 health is open, and shows no name and no id', async () => {
    for (const path of ['/healthz', '/readyz']) {
      const answer = await board.send('GET', path);
      expect([answer.status, answer.text], path).toEqual([200, 'ok\n']);
    }
    const login = await board.send('GET', '/login');
    expect(login.status).toBe(200);
    expect(login.text).not.toMatch(/stats|notify|secret-id|ada/);
  });

  test('O-01 with a session the same pages, files and data are there', async () => {
    const cookie = await board.login();
    for (const path of STATIC) expect((await board.send('GET', path, { cookie })).status, path).toBe(200);
    const page = await board.send('GET', '/board/queue/stats', { cookie });
    expect([page.status, page.headers.get('content-type')]).toEqual([200, 'text/html; charset=UTF-8']);
    const queues = await board.send('GET', '/board/api/queues?activeQueue=stats', { cookie });
    for (const id of IDS) expect(queues.text).toContain(id);
    expect((await board.send('GET', '/board/api/redis/stats', { cookie })).status).toBe(403);
    expect((await board.send('GET', '/nothing', { cookie })).status).toBe(404);
  });

  test.each([
    ['text/plain from another origin', { origin: 'http://evil.example', 'content-type': 'text/plain' }],
    ['JSON from another origin', { origin: 'http://evil.example', 'content-type': 'application/json' }],
    ['another port of this host', { origin: 'http://127.0.0.1:1', 'content-type': 'application/json' }],
    ['no origin (a sandboxed frame)', { origin: 'null', 'content-type': 'text/plain' }],
    ['what the browser calls cross-site', { 'sec-fetch-site': 'cross-site', 'content-type': 'text/plain' }],
    ['what the browser calls same-site', { 'sec-fetch-site': 'same-site' }],
  ])('O-01 with a session %s is 403, and nothing changes', async (_, headers) => {
    const cookie = await board.login();
    const { queue, close } = openStatsQueue(stores.env);
    const body = '{"name":"x","data":{"evil":true},"options":{}}';
    for (const [method, path] of ACTIONS.filter(([method]) => method !== 'OPTIONS')) {
      const answer = await board.send(method, path, { cookie, headers, body });
      expect(answer.status, `${method} ${path}`).toBe(403);
    }
    expect([await queue.isPaused(), await queue.getWaitingCount()]).toEqual([false, IDS.length]);
    expect((await board.send('GET', '/', { cookie })).status, 'still logged in').toBe(200);
    await close();
  });

  test('O-01 a login from a page of another site is refused', async () => {
    const form = loginForm(USER, PASSWORD);
    const headers = { ...form.headers, origin: 'http://evil.example' };
    const answer = await board.send('POST', '/login', { ...form, headers });
    expect([answer.status, answer.headers.getSetCookie()]).toEqual([403, []]);
  });

  test('O-01 without credentials it does not start, whatever it should listen on: 78 and the settings', async () => {
    const { WEB_USER: _user, WEB_PASSWORD: _password, ...env } = stores.env as NodeJS.ProcessEnv;
    const bare = startType('web', [], { ...env, HOST: '0.0.0.0', PORT: '0' });
    expect(await bare.ended).toBe(78);
    expect(bare.text.join('\n')).toMatch(/WEB_USER is missing[\s\S]*WEB_PASSWORD is missing/);
  });
});

describe('the session', () => {
  test('its cookie is out of reach of scripts and other sites, and Secure behind https', async () => {
    const form = loginForm(USER, PASSWORD);
    const plain = (await board.send('POST', '/login', form)).headers.getSetCookie();
    expect(plain).toHaveLength(1);
    expect(plain[0]).toMatch(/; Max-Age=43200; Path=\/; HttpOnly; SameSite=Strict$/);
    const headers = { ...form.headers, 'x-forwarded-proto': 'https' };
    const secure = (await board.send('POST', '/login', { ...form, headers })).headers.getSetCookie();
    expect(secure[0]).toMatch(/; HttpOnly; Secure; SameSite=Strict$/);
  });

  test('logging out ends it, for a copy of the cookie too', async () => {
    const [cookie, other] = [await board.login(), await board.login()];
    const answer = await board.send('POST', '/logout', { cookie });
    expect([answer.status, answer.headers.get('location')]).toEqual([303, '/login']);
    expect(answer.headers.getSetCookie()[0]).toMatch(/^twinbox_session=; Max-Age=0;/);
    expect((await board.send('GET', '/', { cookie })).status).toBe(302);
    expect((await board.send('GET', '/', { cookie: other })).status).toBe(200);
  });

  test('a changed, cut or foreign cookie is none', async () => {
    const cookie = await board.login();
    const [name, value = ''] = cookie.split('=');
    const later = value.replace(/^\d+/, (expiry) => String(Number(expiry) + 1));
    const flipped = value.replace(/\.(.)/, (_, first: string) => `.${first === 'a' ? 'b' : 'a'}`);
    const tampered = [
      later,
      flipped,
      value.slice(0, -6),
      value.split('.')[0],
      '',
      'x.y.z',
      '%E0%A4%A',
      'true',
    ];
    for (const forged of tampered) {
      const answer = await board.send('GET', '/', { cookie: `${name ?? ''}=${forged ?? ''}` });
      expect(answer.status, forged).toBe(302);
    }
    expect((await board.send('GET', '/', { cookie })).status).toBe(200);
  });

  test('ends after 12 hours, and with another password; another process of the same login knows it', async () => {
    const HOUR_MS = 3_600_000;
    const issue = async (password: string, ageMs: number): Promise<string> => {
      const sessions = await createSessions({ user: USER, password, now: () => Date.now() - ageMs });
      const app = new Hono().get('/', async (c) => {
        await sessions.open(c);
        return c.text('');
      });
      const { headers } = await app.request('/');
      return cookieOf({ status: 200, text: '', headers });
    };
    const seen = async (cookie: string) => (await board.send('GET', '/', { cookie })).status;
    expect(await seen(await issue(PASSWORD, 11.9 * HOUR_MS))).toBe(200);
    expect(await seen(await issue(PASSWORD, 12.1 * HOUR_MS))).toBe(302);
    expect(await seen(await issue(`${PASSWORD}2`, 0))).toBe(302);
  });

  test('guessing is slowed down, the right password included, and nothing that was typed is logged', async () => {
    const guessed = await startConsole(stores.env);
    const statuses: number[] = [];
    for (let guess = 1; guess <= 7; guess += 1) {
      statuses.push((await guessed.send('POST', '/login', loginForm('ada', `guess-${guess}`))).status);
    }
    expect(statuses).toEqual([401, 401, 401, 401, 401, 401, 429]);
    const right = await guessed.send('POST', '/login', loginForm(USER, PASSWORD));
    expect([right.status, right.headers.get('retry-after')]).toEqual([429, '1']);
    expect(right.headers.getSetCookie()).toEqual([]);
    const log = JSON.stringify(guessed.process.lines);
    expect(log).toContain('web.login.refused');
    expect(log).not.toContain('guess-');
    expect(await guessed.process.stop()).toBe(0);
  });
});

test('every answer carries the protective headers', async () => {
  const cookie = await board.login();
  for (const [path, script] of [
    ['/', ''],
    ['/board', "script-src 'self'"],
  ] as const) {
    const { headers } = await board.send('GET', path, { cookie });
    const policy = headers.get('content-security-policy') ?? '';
    expect(policy).toMatch(/^default-src 'none'; frame-ancestors 'none'; form-action 'self'/);
    expect(/script-src [^;]*/.exec(policy)?.[0] ?? '').toBe(script);
    expect(headers.get('x-content-type-options')).toBe('nosniff');
    expect(headers.get('x-frame-options')).toBe('DENY');
    expect(headers.get('cache-control')).toBe('no-store');
  }
});
