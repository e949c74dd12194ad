/** What is wrong with a list of broker addresses, each without the address itself: it holds a password. */
export function brokerAddressFaults(list: string): string[] {
  const addresses = list.split(',').map((address) => address.trim());
  const which = (index: number): string =>
    addresses.length === 1 ? 'it' : `address ${index + 1} of ${addresses.length}`;
  const faults: string[] = [];
  const vhosts = new Map<string, number>();
  for (const [index, address] of addresses.entries()) {
    const url = URL.canParse(address) ? new URL(address) : undefined;
    if (address === '') faults.push(`${which(index)} is empty: there is a comma too many`);
    else if (url === undefined)
      faults.push(`${which(index)} is no address (in a name or password write , as %2C and / as %2F)`);
    else if (url.protocol !== 'amqp:' && url.protocol !== 'amqps:')
      faults.push(`${which(index)} does not begin with amqp:// or amqps://`);
    else if (url.hostname === '') faults.push(`${which(index)} names no host`);
    else vhosts.set(url.pathname === '/' ? '' : url.pathname, index);
  }
  const [one, other] = [...vhosts.values()];
  if (one !== undefined && other !== undefined)
    faults.push(
      `${which(one)} and ${which(other)} name different virtual hosts: all must be nodes of one cluster`,
    );
  return faults;
}
