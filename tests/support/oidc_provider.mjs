/** oidc-provider with its own pages for signing in, on a port: `node FILE PORT REDIRECT_URI`. */

import Provider from "oidc-provider";

const [port, callback] = process.argv.slice(2);
const client = { client_secret: "a-secret-of-the-client", redirect_uris: [callback] };

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [
    { ...client, client_id: "openmanus" },
    { ...client, client_id: "elsewhere" },
    { ...client, client_id: "robot", redirect_uris: [], response_types: [], grant_types: ["client_credentials"] },
  ],
  claims: { openid: ["sub"], email: ["email"], profile: ["preferred_username"] },
  conformIdTokenClaims: false, // as most providers: names are in the ID token
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, preferred_username: id.split(":").at(-1), email: `${id}@example.com` }),
  }),
  features: {
    devInteractions: { enabled: true },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_, resource) => ({
        scope: "", audience: new URL(resource).hostname, accessTokenFormat: "jwt",
        jwt: { sign: { alg: "RS256" } },
      }),
    },
  },
});
provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
