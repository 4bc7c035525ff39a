package execenv_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/termbridge/termbridge/execenv"
)

// What looks like a secret by its name or by its value goes, and what only
// resembles one stays.
func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "id")
	if err := os.WriteFile(key, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	x := func(n int) string { return strings.Repeat("a1B2", n/4+1)[:n] }
	goes := []string{
		// By name.
		"DOCKER_AUTH_CONFIG={}", "BW_SESSION=s", "OP_SESSION_my=s", "TS_AUTHKEY=s", "ORG_GRADLE_PROJECT_signingKey=s",
		"CI_JOB_JWT=s", "CI_JOB_JWT_V2=s", "SLACK_WEBHOOK_URL=s", "DISCORD_WEBHOOK=s", "LICENSE_KEYS=s", "PRIVATEKEY=s",
		"ACCESSKEY=s", "CONNECTION_STRING=s", "AZURE_STORAGE_CONNECTION_STRING=s", "ConnectionStrings__Default=s", "AUTHORIZATION=s",
		"BLOB_SAS=s", "BLOB_SAS_URL=s", "SECRET=s", "CLIENT_SECRET=s", "DB_PASS=s", "DB_PASSWORD=123456", "mysql_pwd=s", "SSHPASS=s",
		"KEY_PASSPHRASE=s", "GOOGLE_CREDENTIALS={}", "OPENAI_API_KEY=s", "APIKEY=s", "AWS_SECRET_ACCESS_KEY=/Abc+d/ef", "GH_TOKEN=s",
		"TOKEN=s", "TOKENS=s", "NPM_TOKEN_RO=s", "REGISTRY_AUTH=s", "GITHUB_PAT=s", "SENTRY_DSN=s", "SESSION_COOKIE=s", "BEARER=s",
		"CRED=s", "CREDS=s", "GCP_CRED=s", "GCP_CREDS=s", "SMTP_PW=s", "LDAP_BINDPW=s", "COOKIE=s", "COOKIES=s", "MY_TOTP_SEED=s",
		// By value.
		"DATABASE_URL=postgres://app:s3cret@db/app", "REDIS_URL=redis://:s3cret@cache:6379", "PIP_INDEX_URL=https://me:s3cret@pypi.example/simple",
		"A=amqp://a,amqp://u:p@b", "A=https://" + strings.Repeat("ab12", 8) + "@o1.ingest.example/1", "A=mongodb+srv://u:p%40@c/db",
		"A=Server=db;User Id=sa;Password=s3cret;", "A=host=db user=u password=s3cret", "A=jdbc:postgresql://db/app?user=u&password=s3cret",
		"A=AccountName=n;AccountKey=abcdefgh==", `A={"apiKey": "abcdefgh"}`, `A={"auths":{"r":{"auth":"dTpw"}}}`,
		"A=https://a.blob.example/c?sv=1&sig=abcdefghijk%3D", "A=https://h/x?access_token=abcdefgh",
		"A=Bearer abcdefghijkl", "A=Authorization: Basic dXNlcjpwYXNz", "A=-----BEGIN OPENSSH PRIVATE KEY-----\nx",
		"A=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.sig", "A=AGE-SECRET-KEY-1" + strings.Repeat("Q", 58),
		"A=AKIAIOSFODNN7EXAMPLE", "A=AIza" + x(35), "A=ghp_" + x(36), "A=gho_" + x(36), "A=github_pat_" + x(82), "A=glpat-" + x(20),
		"A=sk-ant-api03-" + x(93), "A=sk-proj-" + x(60), "A=sk-" + x(48), "A=sk_live_" + x(24), "A=xoxb-123456789012-" + x(24),
		"A=hf_" + strings.Repeat("aB", 17), "A=npm_" + x(36), "A=pypi-AgEIcHlwaS5vcmc" + x(60), "A=dckr_pat_" + x(27), "A=dop_v1_" + strings.Repeat("0a", 32),
		"A=hvs." + x(95), "A=SG." + x(22) + "." + x(43), "A=glsa_" + x(32) + "_0a0a0a0a", "A=tskey-auth-" + x(20), "A=123456789:A" + x(34),
		"A=ATATT3xFfGF0" + x(40), "A=HRKU-AA" + x(58), "A=dp.pt." + x(43), "A=dp.st.dev." + x(40), "A=xai-" + x(80), "A=gsk_" + x(52),
		"A=SK" + strings.Repeat("0a", 16), "A=key-" + strings.Repeat("0a", 16), "A=pscale_pw_" + x(43), "A=pscale_tkn_" + x(43),
		"A=" + x(14) + ".atlasv1." + x(67), "A=AKCp" + x(69), "A=NRAK-" + strings.ToUpper(x(27)), "A=PMAK-" + strings.Repeat("0a", 12) + "-" + strings.Repeat("0a", 17),
		"A=sgp_" + strings.Repeat("0a", 20), "A=ntn_12345678901" + x(35), "A=sha256~" + x(43), "A=fo1_" + x(43),
		"A=machine h login u password p", "A=machine h\n  password p", "A=users:\n- user:\n    client-key-data: LS0t",
		"A=curl -H 'Authorization: Bearer abcdefghijkl' https://h", "A='http.extraheader=AUTHORIZATION: basic dXNlcjpwYXNz'",
		"A=//registry.npmjs.org/:_authToken=abcdefgh", "A=_password=aGVsbG8xMjM=", "A=-Xmx1g -Djavax.net.ssl.keyStorePassword=changeit",
		"A=-Drepo.password=s3cret", "A=run --password=s3cret -x", "A=--token s3cret123", "A=PuTTY-User-Key-File-3: ssh-ed25519",
		"A=LTAI" + x(20), "A=AKID" + x(32), "A=EAAC" + x(100), "A=EAAA" + x(60), "A=1//0" + x(40),
		"A=v1.0-" + strings.Repeat("0a", 12) + "-" + strings.Repeat("0a", 73), "A=bkua_" + strings.Repeat("0a", 20), "A=tfp_" + x(40),
		"A=sbp_" + strings.Repeat("0a", 20), "A=figd_" + x(40), "A=r8_" + x(37), "A=GOCSPX-" + x(28), "A=sq0csp-" + x(43),
		"A=CCIPAT_" + x(22) + "_" + strings.Repeat("0a", 20), "A=lsv2_pt_" + strings.Repeat("0a", 16) + "_0123456789", "A=nfp_" + x(36),
		"pgpass=s", "USERPASS=s", "PROXY_USERPWD=s", "MNEMONIC=s", "WALLET_SEED_PHRASE=s", "COSMOS_PRIMARY_KEY=s",
		"A=https://hooks.slack.com/services/T0/B0/" + x(24), "A=https://discord.com/api/webhooks/1/" + x(40),
	}
	stays := []string{
		"GOOGLE_APPLICATION_CREDENTIALS=/home/u/key.json", "AWS_SHARED_CREDENTIALS_FILE=~/.aws/credentials", "AWS_WEB_IDENTITY_TOKEN_FILE=/var/run/token",
		"PASSWORD_STORE_DIR=/home/u/.store", "DB_PASSWORD_FILE=/run/secrets/db", "SSH_KEY_PATH=./id", "TLS_KEY=/etc/ssl/tls.pem", "SSH_KEY=" + key,
		"MAX_TOKENS=4096", "CLAUDE_CODE_MAX_OUTPUT_TOKENS=32000", "MAX_TOKEN_COUNT=8k", "NUM_KEYS=3", "SECRET_KEY_BASE=", "ALWAYS_AUTH=true",
		"ALLOW_EMPTY_PASSWORD=yes", "STRIPE_PUBLIC_KEY=pk", "VAPID_PUBLIC_KEY=B0",
		"SSH_AUTH_SOCK=/tmp/ssh/agent.1", "XAUTHORITY=/home/u/.Xauthority", "TOKENIZERS_PARALLELISM=false", "KEYBOARD=us", "KEYTIMEOUT=1",
		"DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus", "XDG_SESSION_ID=3", "DESKTOP_SESSION=gnome", "SESSION_MANAGER=local/h:@/tmp/.ICE-unix/1",
		"PWD=/", "OLDPWD=/", "EDITOR=vi", "HTTP_PROXY=http://proxy.example:3128", "NO_PROXY=localhost,.example", "DOCKER_HOST=ssh://me@host",
		"GIT_SSH_COMMAND=ssh -i ~/.ssh/id", "GOPROXY=https://proxy.golang.org,direct", "DATABASE_URL=postgres://app@db/app", "REMOTE=git@github.com:a/b.git",
		"URL=http://[::1]:8080/a?b=c", "URL=http://host:80/me@x", "TIMES=10:20@30", "LS_COLORS=rs=0:di=01;34", "PS1=\\u@\\h:\\w\\$ ",
		"FZF_DEFAULT_OPTS=--bind=ctrl-k:up --color=fg:7", "LESS=-R", "COMPASS=north", "BASH_FUNC_f%%=() {  curl -u u:p http://u:p@h\n}",
		"ANDROID_HOME=/opt/android", "JAVA_TOOL_OPTIONS=-Dfile.encoding=UTF-8", "PATH=/bin", "HOME=/home/u", "LANG=C.UTF-8",
		"CREDIT=1", "SCRED=1", "PWM=1", "SPW=1", "COOKIEJAR=1", "ERLANG_OTP=27", "LED_PIN=13", "IMAGE=app@sha256:" + strings.Repeat("0a", 32),
		"A=SKIP", "A=SK" + strings.Repeat("0a", 15), "A=key-" + strings.Repeat("0a", 15), "A=dp.pt.short", "A=machine learning password", "A=sdk-1.2.3",
		"GPG_KEY=A035C8C19219BA821ECEA86B64E628F8D684696D", "PARTITION_KEY=id", "TABLE_SORT_KEY=at", "CACHE_KEY=v1-linux",
		"OAUTH_TOKEN_URL=https://h/oauth", "TOKEN_URI=https://h/token", "TOKEN_ENDPOINT=https://h/t", "TOKEN_TYPE=bearer",
		"GITHUB_TOKEN_PERMISSIONS=read", "PASSWORD_MIN_LENGTH=12", "PASSWORD_HASHER=bcrypt", "SECRET_MANAGER=gcp", "CREDENTIAL_HELPER=store",
		"A=docker login --password-stdin", "A=--password-file /run/x --token-type bearer", "A=--no-password --quiet", "A=authorization: none",
		"SHA=0123456789abcdef0123456789abcdef01234567", "UUID=123e4567-e89b-12d3-a456-426614174000",
	}
	check := func(kv string, env execenv.Env, want bool) {
		t.Helper()
		agentEnv(t, "PATH=/bin", "LANG=C.UTF-8", kv)
		if got := slices.Contains(env.Environ(), kv); got != want {
			t.Errorf("%s: inherited: %v, want %v", kv, got, want)
		}
	}
	for _, kv := range goes {
		check(kv, execenv.Env{}.InheritSafe(), false)
		check(kv, execenv.Env{}.Inherit(), true)
	}
	for _, kv := range stays {
		check(kv, execenv.Env{}.InheritSafe(), true)
	}

	// An Env can be told more.
	safe := execenv.Env{}.InheritSafe()
	check("NPM_TOKEN=s", safe.Keep("npm_*"), true)
	check("npm_token=s", safe.Keep("NPM_*"), true)
	check("DATABASE_URL=postgres://u:p@db", safe.Keep("DATABASE_URL"), true)
	check("GH_TOKEN=s", safe.Keep("npm_*"), false)
	check("HOUSE=s", safe.Secret("house"), false)
	check("MY_HOUSE_NO=s", safe.Secret("x", "*house*"), false)
	check("HOUSE=s", safe.Secret("x"), true)
	check("HOUSE=s", safe.Secret("*HOUSE").Keep("HOUSE"), true)
	check("HOUSE=s", execenv.Env{}.Keep("HO*"), true)
	check("TMUX=s", safe.Keep("*"), false)
}

// The terminal, the editor and the supervisor of the agent are no command's.
func TestEnvOfTheAgentIsNotInherited(t *testing.T) {
	names := []string{
		"TMUX", "GPG_TTY", "SSH_TTY", "INSIDE_EMACS", "NVIM", "VIM_TERMINAL", "TERMINAL_EMULATOR", "LC_TERMINAL", "LC_TERMINAL_VERSION",
		"VSCODE_INJECTION", "VSCODE_GIT_IPC_HANDLE", "WT_SESSION", "WT_PROFILE_ID", "GHOSTTY_RESOURCES_DIR", "TERMINFO", "NOTIFY_SOCKET",
		"ELECTRON_RUN_AS_NODE", "LISTEN_FDS", "JOURNAL_STREAM", "NODE_CHANNEL_FD", "KONSOLE_DBUS_SESSION", "WARP_IS_LOCAL_SHELL_SESSION",
		"SUPERVISOR_ENABLED", "pm_id", "ZED_TERM", "COLORFGBG",
		"ITERM2_SQUELCH_MARK", "TERM_FEATURES", "TERMINOLOGY", "PTYXIS_PROFILE", "WAVETERM_BLOCKID", "WAVETERM", "YAKUAKE_UID",
		"ZED_ENVIRONMENT", "PYCHARM_HOSTED", "INTELLIJ_ENVIRONMENT_READER", "__INTELLIJ_COMMAND_HISTFILE__", "KATE_PID",
		"GIO_LAUNCHED_DESKTOP_FILE", "GIO_LAUNCHED_DESKTOP_FILE_PID", "DESKTOP_STARTUP_ID", "__CFBundleIdentifier",
		"LISTEN_PIDFDID", "MANAGERPIDFDID", "CREDENTIALS_DIRECTORY", "RUNTIME_DIRECTORY", "STATE_DIRECTORY", "CACHE_DIRECTORY",
		"LOGS_DIRECTORY", "CONFIGURATION_DIRECTORY", "DBUS_STARTER_ADDRESS", "DBUS_STARTER_BUS_TYPE", "MONIT_EVENT", "CIRCUS_WID",
		"EINHORN_FDS", "OVERMIND_SOCKET", "SERVER_STARTER_PORT", "pm_exec_path", "NODE_APP_INSTANCE",
	}
	vars := []string{"PATH=/bin", "LANG=C.UTF-8", "LC_TIME=C", "SSH_CONNECTION=1", "TERMINFO_DIRS=/t", "ELECTRON_MIRROR=m", "DISPLAY=:0", "XDG_VTNR=1",
		"TMUX_TMPDIR=/t", "NVIM_APPNAME=n", "INTELLIJ=1", "XDG_RUNTIME_DIR=/run", "NODE_OPTIONS=-x"}
	want := slices.Clone(vars)
	for _, name := range names {
		vars = append(vars, name+"=1")
	}
	agentEnv(t, vars...)
	slices.Sort(want)
	for _, env := range []execenv.Env{execenv.Env{}.InheritSafe(), execenv.Env{}.Inherit(), execenv.Env{}.Inherit().Keep("*")} {
		if got := env.Environ(); !slices.Equal(got, want) {
			t.Errorf("got %q\nwant %q", got, want)
		}
	}
	if got := (execenv.Env{}).With(map[string]string{"GPG_TTY": "x"}).Environ(); !slices.Contains(got, "GPG_TTY=x") {
		t.Errorf("With does not win: %q", got)
	}
}

func TestEnvOnly(t *testing.T) {
	agentEnv(t, "PATH=/bin", "HOME=/h")
	env := execenv.Env{}.InheritSafe().Only(map[string]string{"A": "1", "B": "2"})
	if got, want := env.Environ(), []string{"A=1", "B=2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := (execenv.Env{}).Only(nil).Environ(); len(got) > 0 {
		t.Errorf("got %q, want nothing", got)
	}
	r := start(t, newLocal(t, nil), execenv.Spec{Path: "/usr/bin/env", Env: env, Dir: "/"})
	var names []string
	for line := range strings.Lines(r.rest(t)) {
		name, _, _ := strings.Cut(line, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	if want := []string{"A", "B", "TERMBRIDGE_ID"}; !slices.Equal(names, want) {
		t.Errorf("a process has %q, want %q", names, want)
	}
}

func TestEnvDefault(t *testing.T) {
	agentEnv(t, "PATH=/bin", "LANG=C", "A=agent", "B=agent", "C=agent")
	env := execenv.Env{}.InheritSafe().With(map[string]string{"A": "set"}).Without("B").
		Default(map[string]string{"A": "default", "B": "default", "C": "default"})
	if got, want := env.Environ(), []string{"A=set", "C=default", "LANG=C", "PATH=/bin"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
