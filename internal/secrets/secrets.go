// Package secrets knows what looks like a secret: a variable of an environment, by its
// name or its value, and a part of a text.
package secrets

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// A rule is one by which a variable looks like a secret. The sources are
// the rules of gitleaks (each "gitleaks ID" is one of its default
// configuration), the documentation of the product that a name belongs to, and
// common usage.
type rule struct {
	pattern string // of a name, as [Matches] takes it, or a regular expression for a value
	source  string
}

// secretNames: how the name of a variable says that its value is a secret.
var secretNames = []rule{
	{"*SECRET*", "gitleaks generic-api-key: secret"},
	{"*PASSWORD*", "gitleaks generic-api-key: passw(or)d"},
	{"*PASSWD*", "gitleaks generic-api-key: passw(or)d"},
	{"*PASSPHRASE*", "common"},
	{"*PASSCODE*", "common"},
	{"PASS", "common"},
	{"*_PASS", "common: DB_PASS, SMTP_PASS"},
	{"DBPASS", "common"},
	{"*_PWD", "common: MYSQL_PWD"},
	{"*_PW", "common: SMTP_PW"},
	{"*BINDPW", "LDAP: bindpw"},
	{"SSHPASS", "sshpass -e"},
	{"*CREDENTIAL*", "gitleaks generic-api-key: credential"},
	{"CRED", "gitleaks generic-api-key: creds"},
	{"CREDS", "gitleaks generic-api-key: creds"},
	{"*_CRED", "gitleaks generic-api-key: creds"},
	{"*_CREDS", "gitleaks generic-api-key: creds"},
	{"*_KEY", "gitleaks generic-api-key: key"},
	{"*_KEYS", "gitleaks generic-api-key: key"},
	{"*APIKEY*", "gitleaks generic-api-key: api, key"},
	{"*API_KEY*", "gitleaks generic-api-key: api, key"},
	{"*ACCESSKEY*", "gitleaks generic-api-key: access, key"},
	{"*ACCESS_KEY*", "gitleaks generic-api-key: access, key"},
	{"*PRIVATEKEY*", "gitleaks generic-api-key: key"},
	{"*PRIVATE_KEY*", "gitleaks generic-api-key: key"},
	{"*SIGNINGKEY*", "gitleaks generic-api-key: key; Gradle's signing plugin"},
	{"*SIGNING_KEY*", "gitleaks generic-api-key: key"},
	{"*AUTHKEY*", "gitleaks generic-api-key: auth, key; Tailscale's TS_AUTHKEY"},
	{"*AUTH_KEY*", "gitleaks generic-api-key: auth, key"},
	{"*_AUTH", "gitleaks generic-api-key: auth"},
	{"*AUTH_CONFIG", "GitLab CI: DOCKER_AUTH_CONFIG"},
	{"*AUTHORIZATION*", "gitleaks curl-auth-header"},
	{"*BEARER*", "gitleaks curl-auth-header"},
	{"TOKEN_*", "gitleaks generic-api-key: token"},
	{"*TOKEN", "gitleaks generic-api-key: token"},
	{"*TOKENS", "gitleaks generic-api-key: token"},
	{"*_TOKEN_*", "gitleaks generic-api-key: token"},
	{"*_PAT", "common: personal access tokens"},
	{"*_JWT", "GitLab CI: CI_JOB_JWT"},
	{"*_JWT_*", "GitLab CI: CI_JOB_JWT_V2"},
	{"JWT", "common"},
	{"*WEBHOOK_URL*", "gitleaks slack-webhook-url, microsoft-teams-webhook"},
	{"*_WEBHOOK", "gitleaks slack-webhook-url, microsoft-teams-webhook"},
	{"*CONNECTION_STRING*", "Azure, .NET"},
	{"*CONNECTIONSTRING*", "Azure, .NET"},
	{"*_DSN", "Sentry, database drivers"},
	{"*_SAS", "Azure: shared access signatures"},
	{"*_SAS_*", "Azure: shared access signatures"},
	{"COOKIE", "common"},
	{"COOKIES", "common"},
	{"*_COOKIE", "common"},
	{"*_COOKIES", "common"},
	{"*TOTP*", "RFC 6238: the seed of one-time passwords"},
	{"PGPASS", "common: of .pgpass"},
	{"*USERPASS", "common"},
	{"*USERPWD", "curl: CURLOPT_USERPWD"},
	{"*MNEMONIC", "BIP 39: the words of a wallet"},
	{"*SEED_PHRASE", "BIP 39: the words of a wallet"},
	{"BW_SESSION", "Bitwarden"},
	{"OP_SESSION_*", "1Password"},
}

// secretValues: how a value says so itself.
var secretValues = []rule{
	{`://[^\s/@:]*:[^\s/@]+@`, "RFC 3986: a password in a URL; gitleaks sidekiq-sensitive-url"},
	{`://[[:xdigit:]]{32,}@`, "Sentry: a key in a URL"},
	{`(?i)(?:^|[?&;,\s"'{])"?(?:password|passwd|pwd|(?:client|shared)[_-]?secret|secret|(?:access|auth|api|refresh)[_-]?token|token|api[_-]?key|(?:shared[_-]?)?(?:access|account|secret)[_-]?key)"?\s*[=:]\s*"?[^\s&;,"']{4}`,
		"gitleaks generic-api-key; a connection string, a query or JSON"},
	{`(?i)(?:^|[\s"'])-[-D][\w.-]*(?:password|passwd|passphrase|secret|token)(?:=|\s+)[^\s&;,"'-][^\s&;,"']{3}`,
		"options of commands and of Java: --password=, -Djavax.net.ssl.keyStorePassword="},
	{`(?i)\bauthorization:\s*(?:bearer|basic|token)\s+[^\s"']{8}`, "gitleaks curl-auth-header, within a command or git's http.extraHeader"},
	{`(?:^|[:\s])_(?:authToken|auth|password)\s*=\s*\S{4}`, "npm: .npmrc"},
	{`(?i)[?&;](?:sig|signature|x-amz-signature|x-goog-signature)=[^\s&;]{8}`, "Azure, AWS, Google: signed URLs"},
	{`(?i)^\s*(?:authorization:\s*)?(?:bearer|basic|token)\s+\S{8,}\s*$`, "gitleaks curl-auth-header"},
	{`"auths?"\s*:\s*[{"]`, "Docker: config.json"},
	{`-----BEGIN[ A-Z0-9_-]{0,100}PRIVATE KEY`, "gitleaks private-key"},
	{`\bAGE-SECRET-KEY-1[0-9A-Z]{20}`, "gitleaks age-secret-key"},
	{`\bey[a-zA-Z0-9_-]{15,}\.ey[a-zA-Z0-9_-]{15,}\.`, "gitleaks jwt"},
	{`\bhooks\.slack\.com/(?:services|workflows|triggers)/.{20}`, "gitleaks slack-webhook-url"},
	{`\.webhook\.office\.com/webhookb2/.`, "gitleaks microsoft-teams-webhook"},
	{`\bdiscord(?:app)?\.com/api/webhooks/\d+/.`, "Discord: webhooks"},
	{`\b(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b`, "gitleaks aws-access-token"},
	{`\bABSK[A-Za-z0-9+/]{100,}`, "gitleaks aws-amazon-bedrock-api-key-long-lived"},
	{`\bAIza[\w-]{35}`, "gitleaks gcp-api-key"},
	{`\bya29\.[\w-]{20}`, "Google: OAuth access tokens"},
	{`\bgh[oprsu]_[0-9a-zA-Z]{30}`, "gitleaks github-pat, -oauth, -app-token, -refresh-token"},
	{`\bgithub_pat_\w{30}`, "gitleaks github-fine-grained-pat"},
	{`\bgl(?:pat|dt|cbt|ptt|rt|soat|oas|agent|ft|imt|ffct)-[\w-]{15}`, "gitleaks gitlab-pat and its like"},
	{`\bsk-(?:ant|proj|svcacct|admin|or)-[\w-]{20}`, "gitleaks anthropic-api-key, openai-api-key"},
	{`\bsk-[a-zA-Z0-9]{32}`, "gitleaks openai-api-key"},
	{`\b(?:sk|rk)_(?:test|live|prod)_[a-zA-Z0-9]{10}`, "gitleaks stripe-access-token"},
	{`\bwhsec_[A-Za-z0-9+/]{20}`, "Stripe: webhooks"},
	{`\bxox[abeoprs]-[\w-]{10}`, "gitleaks slack-bot-token and its like"},
	{`\bxapp-\d-[A-Za-z0-9-]{10}`, "gitleaks slack-app-token"},
	{`\b(?:hf|api_org)_[a-zA-Z]{30}`, "gitleaks huggingface-access-token"},
	{`\bnpm_[a-zA-Z0-9]{36}`, "gitleaks npm-access-token"},
	{`\bpypi-AgE[\w-]{20}`, "gitleaks pypi-upload-token"},
	{`\brubygems_[a-f0-9]{48}`, "gitleaks rubygems-api-token"},
	{`\bdckr_(?:pat|oat)_[\w-]{20}`, "Docker: access tokens"},
	{`\bdo[opr]_v1_[a-f0-9]{40}`, "gitleaks digitalocean-pat"},
	{`\bhv[bs]\.[\w-]{20}`, "gitleaks vault-service-token, vault-batch-token"},
	{`\bSG\.[\w-]{16,}\.[\w-]{16}`, "gitleaks sendgrid-api-token"},
	{`\bglc_[A-Za-z0-9+/]{32}|\bglsa_[A-Za-z0-9]{32}`, "gitleaks grafana-cloud-api-token, grafana-service-account-token"},
	{`\bshp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}`, "gitleaks shopify-access-token"},
	{`\btskey-[a-z]+-\w{10}`, "Tailscale: keys"},
	{`\bops_eyJ[a-zA-Z0-9+/]{50}`, "gitleaks 1password-service-account-token"},
	{`\bdapi[a-f0-9]{32}`, "gitleaks databricks-api-token"},
	{`\blin_api_[a-zA-Z0-9]{40}`, "gitleaks linear-api-key"},
	{`\bpul-[a-f0-9]{40}`, "gitleaks pulumi-api-token"},
	{`\bpplx-[a-zA-Z0-9]{40}`, "gitleaks perplexity-api-key"},
	{`\bsntrys_eyJ|\bsntryu_[a-f0-9]{40}`, "gitleaks sentry-org-token, sentry-user-token"},
	{`^\d{5,16}:A[\w-]{34}$`, "gitleaks telegram-bot-api-token"},
	{`\bATATT3[\w=+/-]{20}`, "gitleaks atlassian-api-token"},
	{`\bHRKU-[\w-]{30}`, "gitleaks heroku-api-key-v2"},
	{`\bdp\.(?:pt|st|ct|sa|scim|audit)\.[a-zA-Z0-9._-]{30}`, "gitleaks doppler-api-token"},
	{`\bxai-[a-zA-Z0-9]{40}|\bgsk_[a-zA-Z0-9]{40}`, "xAI, Groq: API keys"},
	{`\bSK[0-9a-f]{32}\b`, "gitleaks twilio-api-key"},
	{`\bkey-[a-f0-9]{32}\b`, "gitleaks mailgun-private-api-token"},
	{`\bpscale_(?:pw|tkn|oauth)_[\w=.-]{32}`, "gitleaks planetscale-password and its like"},
	{`\b[a-zA-Z0-9]{14}\.atlasv1\.[\w=-]{60}`, "gitleaks hashicorp-tf-api-token"},
	{`\bAKCp[A-Za-z0-9]{69}\b`, "gitleaks artifactory-api-key"},
	{`\bNRAK-[A-Z0-9]{27}\b`, "gitleaks new-relic-user-api-key"},
	{`\bPMAK-[a-f0-9]{24}-[a-f0-9]{34}\b`, "gitleaks postman-api-token"},
	{`\bsgp_(?:local_|[a-f0-9]{16}_)?[a-f0-9]{40}\b`, "gitleaks sourcegraph-access-token"},
	{`\bntn_[0-9]{11}[A-Za-z0-9]{32}`, "gitleaks notion-api-token"},
	{`\bsha256~[\w-]{43}`, "gitleaks openshift-user-token"},
	{`\bfo1_[\w-]{43}|\bfm[12][ar]?_[a-zA-Z0-9+/]{100}`, "gitleaks flyio-access-token"},
	{`(?i)\bmachine\s+\S+\s+(?:login\s+\S+\s+)?password\s+\S`, "netrc"},
	{`\bPuTTY-User-Key-File-\d:`, "PuTTY: private keys"},
	{`\bsbp_[a-f0-9]{40}\b`, "Supabase: access tokens"},
	{`\bfigd_[\w-]{40}`, "Figma: access tokens"},
	{`\br8_[a-zA-Z0-9]{37}`, "Replicate: API tokens"},
	{`\bGOCSPX-[\w-]{28}`, "Google: client secrets"},
	{`\bsq0csp-[\w-]{43}`, "gitleaks square-access-token"},
	{`\bCCIPAT_[a-zA-Z0-9]{22}_[a-f0-9]{40}`, "CircleCI: personal tokens"},
	{`\blsv2_(?:pt|sk)_[a-f0-9]{32}_[a-f0-9]{10}`, "LangSmith: API keys"},
	{`\bnfp_[a-zA-Z0-9]{36}`, "Netlify: access tokens"},
	{`\bLTAI[a-zA-Z0-9]{20}\b`, "gitleaks alibaba-access-key-id"},
	{`\bAKID[a-zA-Z0-9]{32}\b`, "Tencent Cloud: secret ids"},
	{`\bEAA[MC][a-zA-Z0-9]{100}`, "gitleaks facebook-page-access-token"},
	{`\bEAAA[\w-]{60}`, "gitleaks square-access-token"},
	{`\bv1\.0-[a-f0-9]{24}-[a-f0-9]{146}\b`, "gitleaks cloudflare-origin-ca-key"},
	{`\b1//0[\w-]{40}`, "Google: OAuth refresh tokens"},
	{`\bbkua_[a-z0-9]{40}\b`, "Buildkite: API tokens"},
	{`\btfp_[a-zA-Z0-9]{40}`, "gitleaks typeform-api-token"},
	{`\bclient-key-data:\s*\S`, "Kubernetes: kubeconfig"},
}

// What has such a name and is no secret all the same.
var (
	publicNames = []string{"*PUBLIC_KEY*", "*PUBLICKEY*", "*PUBLISHABLE_KEY*",
		"GPG_KEY", // of the images of Python: a fingerprint
		"*PARTITION_KEY", "*SORT_KEY", "*CACHE_KEY", "*TOKEN_URL", "*TOKEN_URI", "*TOKEN_ENDPOINT", "*TOKEN_TYPE",
		"*TOKEN_PERMISSIONS", "*PASSWORD_MIN_LENGTH", "*PASSWORD_HASHER", "*SECRET_MANAGER", "*CREDENTIAL_HELPER"}
	countedNames = []string{"*TOKENS", "*_TOKEN_*", "*_KEYS"}                                 // MAX_TOKENS
	fileNames    = []string{"*_FILE", "*_PATH", "*_DIR", "*_HOME", "*_SOCK", "*_CREDENTIALS"} // the value may be a path

	harmlessWord   = regexp.MustCompile(`(?i)^(?:|true|false|yes|no|on|off|none|null|auto|always|never|[01])$`)
	harmlessNumber = regexp.MustCompile(`^[0-9][0-9_.,]*[kKmM]?$`)
	pathOf         = regexp.MustCompile(`^(?:~|\.{1,2})?/[^\n]*$|^file://`)
	withExtension  = regexp.MustCompile(`\.\w{1,5}$`)
)

var secretValue = sync.OnceValue(func() *regexp.Regexp {
	all := make([]string, len(secretValues))
	for i, s := range secretValues {
		all[i] = s.pattern
	}
	return regexp.MustCompile("(?:" + strings.Join(all, ")|(?:") + ")")
})

// A Kind is what the name of a variable says about its value.
type Kind struct{ secret, counted, file bool }

// kinds remembers them: names are few and the same at every start, and to match one
// with all patterns takes a microsecond.
var kinds sync.Map

// KindOf returns the Kind of a name, in upper or lower case.
func KindOf(name string) Kind {
	if k, ok := kinds.Load(name); ok {
		return k.(Kind)
	}
	upper := strings.ToUpper(name)
	k := Kind{
		secret:  slices.ContainsFunc(secretNames, func(r rule) bool { return match(r.pattern, upper) }) && !Matches(publicNames, upper),
		counted: Matches(countedNames, upper),
		file:    Matches(fileNames, upper),
	}
	kinds.Store(strings.Clone(name), k)
	return k
}

// Matches reports whether a name, in upper case, is like one of patterns: of those, an
// asterisk at the beginning or the end stands for anything.
func Matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return match(pattern, name) })
}

func match(pattern, name string) bool {
	core, anyPrefix := strings.CutPrefix(pattern, "*")
	core, anySuffix := strings.CutSuffix(core, "*")
	switch {
	case anyPrefix && anySuffix:
		return strings.Contains(name, core)
	case anyPrefix:
		return strings.HasSuffix(name, core)
	case anySuffix:
		return strings.HasPrefix(name, core)
	}
	return name == core
}

// secretCache remembers what was found of variables with a value: they are the
// same at every start, and an expression takes its time.
var secretCache struct {
	sync.Map // of "NAME=value" to bool
	n        atomic.Int32
}

const maxSecretCache = 4096

// Looks reports whether the variable kv, "NAME=value", whose name is of that Kind,
// looks like a secret.
func (k Kind) Looks(kv, value string) bool {
	if found, ok := secretCache.Load(kv); ok {
		return found.(bool)
	}
	found := k.judge(value)
	if secretCache.n.Add(1) > maxSecretCache {
		secretCache.Clear()
		secretCache.n.Store(1)
	}
	secretCache.Store(strings.Clone(kv), found)
	return found
}

func (k Kind) judge(value string) bool {
	switch {
	case strings.HasPrefix(value, "() {"): // a function of bash
		return false
	case secretValue().MatchString(value):
		return true
	case !k.secret, harmlessWord.MatchString(value):
		return false
	case k.counted && harmlessNumber.MatchString(value):
		return false
	}
	return !pathOf.MatchString(value) || !k.isPath(value)
}

// isPath reports whether value, which begins like a path, is one: a key in
// base64 may begin with a slash, too.
func (k Kind) isPath(value string) bool {
	if k.file || withExtension.MatchString(value) || strings.HasPrefix(value, "file:") {
		return true
	}
	if rest, ok := strings.CutPrefix(value, "~"); ok {
		home, _ := os.UserHomeDir()
		value = filepath.Join(home, rest)
	}
	_, err := os.Lstat(value)
	return err == nil
}
