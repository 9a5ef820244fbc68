// GET by Node's own fetch, sent to the proxy by undici's EnvHttpProxyAgent as the global dispatcher.
import { EnvHttpProxyAgent, setGlobalDispatcher } from 'undici';
import { say, sayFailed, sha256 } from './outcome.mjs';

const [url] = process.argv.slice(2);
setGlobalDispatcher(new EnvHttpProxyAgent());
try {
  const got = await fetch(url);
  say({ status: got.status, sha256: sha256(await got.arrayBuffer()) });
} catch (error) {
  sayFailed(error);
}
