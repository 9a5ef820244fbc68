// What a client says of its request: one JSON object on standard output.
import { createHash } from 'node:crypto';

export const sha256 = (content) => createHash('sha256').update(Buffer.from(content)).digest('hex');

export const say = (outcome) => {
  console.log(JSON.stringify(outcome));
  process.exit(0); // agents keep their connections, and so the program, alive
};

// Libraries wrap the proxy's answer, some twice.
export const sayFailed = (error) => {
  const reasons = [];
  for (let cause = error; cause; cause = cause.cause) reasons.push(cause.message);
  say({ failed: reasons.join(': ') });
};
