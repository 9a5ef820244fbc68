// GET by undici's ProxyAgent, which tunnels http:// URLs too.
import { ProxyAgent, request } from 'undici';
import { say, sayFailed, sha256 } from './outcome.mjs';

const [url] = process.argv.slice(2);
try {
  const got = await request(url, { dispatcher: new ProxyAgent({ uri: process.env.https_proxy }) });
  say({ status: got.statusCode, sha256: sha256(await got.body.arrayBuffer()) });
} catch (error) {
  sayFailed(error);
}
