// GET by axios, which finds the proxy in the environment. The first argument says which axios: before
// version 1.18 it asked the proxy for https:// URLs in absolute-form, instead of by CONNECT.
import { say, sayFailed, sha256 } from './outcome.mjs';

const [which, url] = process.argv.slice(2);
const { default: axios } = await import(which);
try {
  const got = await axios.get(url, { responseType: 'arraybuffer', validateStatus: () => true });
  say({ status: got.status, sha256: sha256(got.data), proxyStatus: got.headers['proxy-status'] });
} catch (error) {
  sayFailed(error);
}
