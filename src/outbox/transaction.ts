import type { Pool, PoolClient } from 'pg';

/**
 * By its shape: the application may bring a `pg` of its own, whose classes are not ours.
 * A pool takes another connection for every query, so that nothing it writes is in anyone's transaction.
 */
export function isPool(candidate: object): boolean {
  return (
    'totalCount' in candidate &&
    'idleCount' in candidate &&
    'connect' in candidate &&
    typeof candidate.connect === 'function'
  );
}

/** A `pg` client knows from the server's last answer that no transaction is open; an older `pg` cannot tell. */
export function isOutside(client: { getTransactionStatus?: () => unknown }): boolean {
  return typeof client.getTransactionStatus === 'function' && client.getTransactionStatus() === 'I';
}

/**
 * Runs `work` in one transaction, on one connection of the pool. An aborted transaction answers COMMIT with ROLLBACK
 * and no error at all; that is noticed here, since it would lose the business change and its event together in
 * silence. What `work` calls must be given its `tx`: another `inTransaction` inside is another transaction.
 * @throws what `work` throws (after a rollback)
 * @throws {TypeError} `pool` is no pool
 * @throws {Error} the commit did not commit, or `work` ended the transaction itself
 * @throws the connection's error when it broke; if that was during COMMIT, nobody knows whether it was committed
 */
export async function inTransaction<T>(pool: Pool, work: (tx: PoolClient) => Promise<T>): Promise<T> {
  if (!isPool(pool))
    throw new TypeError(
      'inTransaction takes a pg Pool: inside a transaction hand on its tx, and use SAVEPOINT for a part that may fail',
    );
  const client = await pool.connect();
  // A client that dies while it is checked out emits 'error', which nobody else listens to then.
  let broken: Error | undefined;
  const onError = (error: Error): void => {
    broken = error;
  };
  client.on('error', onError);
  try {
    await client.query('BEGIN');
    const result = await work(client);
    if (isOutside(client)) throw endedByWork();
    const { command } = await client.query('COMMIT');
    if (command !== 'COMMIT') throw notCommitted(command);
    return result;
  } catch (error) {
    await client.query('ROLLBACK').catch((rollbackError: unknown) => {
      broken ??= rollbackError as Error; // a connection in an unknown state goes back to nobody
    });
    throw error;
  } finally {
    client.off('error', onError);
    client.release(broken);
  }
}

function endedByWork(): Error {
  return new Error(
    'the transaction was ended inside (COMMIT or ROLLBACK in work): what was written after that stood alone, and what ' +
      'was written before may have been committed. Take BEGIN, COMMIT and ROLLBACK out of work; use SAVEPOINT for a part',
  );
}

function notCommitted(command: string): Error {
  return new Error(
    `the transaction was not committed (the server answered ${command}): a statement in it failed and its error was ` +
      'swallowed. Let the error pass, or put the statement behind a SAVEPOINT',
  );
}
