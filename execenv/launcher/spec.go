package launcher

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/internal/shellwords"
)

// Forms are the forms of a text that [Parse] takes.
const Forms = `ssh://[USER@]HOST[:PORT][/DIR][?key=FILE&known_hosts=FILE&config=FILE]
docker://CONTAINER[/DIR]
podman://CONTAINER[/DIR]
kubectl://CONTEXT/NAMESPACE/POD[/CONTAINER][?dir=DIR]
sandbox:DIR[?network=yes]
exec:COMMAND LINE`

// Parse returns the Launcher, and the directory at its place, that a text names: one
// of [Forms]. HOST may be an alias of ssh's configuration. In kubectl's form an
// empty CONTEXT or NAMESPACE is what its configuration says. A sandbox reads and
// writes DIR, and has no network unless asked. The words of exec are split by the
// shell's rules of quoting, and the command follows them.
func Parse(text string) (l Launcher, dir string, err error) {
	kind, rest, ok := strings.Cut(text, ":")
	if !ok {
		return l, "", fmt.Errorf("launcher: %q names no environment; the forms are:\n%s", text, Forms)
	}
	switch kind {
	case "ssh", "docker", "podman", "kubectl":
		l, dir, err = parseURL(text)
	case "sandbox":
		l, dir, err = parseSandbox(rest)
	case "exec":
		var argv []string
		if argv, err = shellwords.Split(rest); err == nil && len(argv) == 0 {
			err = errors.New("no command line")
		}
		if err == nil {
			l = Command(argv...)
		}
	default:
		err = fmt.Errorf("there is no kind %q; the forms are:\n%s", kind, Forms)
	}
	if err != nil {
		return Launcher{}, "", fmt.Errorf("launcher: %q: %w", text, err)
	}
	return l, dir, nil
}

func parseURL(text string) (l Launcher, dir string, err error) {
	u, err := url.Parse(text)
	if err != nil {
		return l, "", errors.Unwrap(err)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return l, "", err
	}
	allowed := map[string][]string{"ssh": {"key", "known_hosts", "config"}, "kubectl": {"dir"}}[u.Scheme]
	for name, values := range query {
		if !slices.Contains(allowed, name) || len(values) > 1 {
			return l, "", fmt.Errorf("?%s is not one of %q, each once", name, allowed)
		}
	}
	if _, set := u.User.Password(); set {
		return l, "", errors.New("a password is not taken: use a key or an agent")
	}
	if u.User != nil && u.Scheme != "ssh" || u.Scheme != "ssh" && u.Port() != "" || u.Fragment != "" {
		return l, "", errors.New("there is more than the form has")
	}
	host := u.Hostname()
	if strings.HasPrefix(host, "-") || strings.HasPrefix(u.User.Username(), "-") {
		return l, "", errors.New("a name that begins with '-' would be an option")
	}
	if dir = u.Path; dir == "/" {
		dir = ""
	}
	switch u.Scheme {
	case "kubectl":
		parts := strings.Split(strings.Trim(u.Path, "/"), "/")
		if strings.HasPrefix(u.Path, "//") { // no namespace
			parts = append([]string{""}, parts...)
		}
		if len(parts) < 2 || len(parts) > 3 || parts[1] == "" {
			return l, "", errors.New("want kubectl://CONTEXT/NAMESPACE/POD[/CONTAINER]")
		}
		for _, part := range parts {
			if strings.HasPrefix(part, "-") {
				return l, "", errors.New("a name that begins with '-' would be an option")
			}
		}
		pod := Pod{Context: u.Host, Namespace: parts[0], Name: parts[1]}
		if len(parts) == 3 {
			pod.Container = parts[2]
		}
		l, dir = Kubectl(pod), query.Get("dir")
	case "ssh":
		destination := host
		if name := u.User.Username(); name != "" {
			destination = name + "@" + host
		}
		l = SSH(destination, &SSHOptions{
			Port: u.Port(), KeyFile: query.Get("key"), KnownHosts: query.Get("known_hosts"), Config: query.Get("config"),
		})
	case "docker":
		l = Docker(host)
	case "podman":
		l = Podman(host)
	}
	if host == "" && u.Scheme != "kubectl" {
		return l, "", errors.New("no name behind //")
	}
	if dir != "" && !path.IsAbs(dir) {
		return l, "", fmt.Errorf("the directory %q is relative", dir)
	}
	return l, dir, nil
}

func parseSandbox(rest string) (l Launcher, dir string, err error) {
	dir, query, _ := strings.Cut(rest, "?")
	if dir, err = filepath.Abs(cmp.Or(dir, ".")); err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return l, "", err
	}
	policy := PolicyFor(execenv.ClassEvolve, dir)
	switch query {
	case "":
	case "network=yes":
		policy.Network = true
	default:
		return l, "", fmt.Errorf("?%s is not network=yes", query)
	}
	if runtime.GOOS == "darwin" {
		return Seatbelt(policy), dir, nil
	}
	return Bubblewrap(policy), dir, nil
}
