// A WebSocket conversation by the npm package ws, through https-proxy-agent.
import { HttpsProxyAgent } from 'https-proxy-agent';
import WebSocket from 'ws';
import { say, sayFailed } from './outcome.mjs';

const [url] = process.argv.slice(2);
const message = 'x'.repeat(100_000);
const socket = new WebSocket(url, { agent: new HttpsProxyAgent(process.env.https_proxy) });
socket.on('open', () => socket.send(message));
socket.on('message', (echoed) => say({ echoed: echoed.toString() === message }));
socket.on('error', sayFailed);
