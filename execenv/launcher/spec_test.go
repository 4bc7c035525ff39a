package launcher_test

import (
	"strings"
	"testing"

	"github.com/termbridge/termbridge/execenv/launcher"
)

func TestParse(t *testing.T) {
	// A text of one of the forms names a launcher and a directory.
	run := launcher.Run{Argv: []string{"RUN"}, Dir: "/d"}
	for text, want := range map[string]struct{ name, argv, dir string }{
		"ssh://dev@build:2222/src?key=/k&known_hosts=/h": {"ssh dev@build", "-p 2222 -o IdentityFile=/k -o IdentitiesOnly=yes -o UserKnownHostsFile=/h -o StrictHostKeyChecking=yes -T -- dev@build RUN", "/src"},
		"ssh://build":                         {"ssh build", "-T -- build RUN", ""},
		"docker://c1/w":                       {"docker c1", "docker exec -i c1 RUN", "/w"},
		"podman://c1":                         {"podman c1", "podman exec -i c1 RUN", ""},
		"kubectl://prod/jobs/w-0/main?dir=/d": {"kubectl prod jobs w-0 main", "kubectl exec -i --context prod --namespace jobs --container main w-0 -- RUN", "/d"},
		"kubectl:///jobs/w-0":                 {"kubectl jobs w-0", "kubectl exec -i --namespace jobs w-0 -- RUN", ""},
		"kubectl:////w-0":                     {"kubectl w-0", "kubectl exec -i w-0 -- RUN", ""},
		"exec:limactl shell 'my vm'":          {"limactl shell my vm", "limactl|shell|my vm|RUN", ""},
	} {
		l, dir, err := launcher.Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		separator := " "
		if strings.Contains(want.argv, "|") {
			separator = "|"
		}
		argv := strings.Join(l.Argv(run), separator)
		if l.Name != want.name || dir != want.dir || !strings.HasSuffix(argv, want.argv) {
			t.Errorf("%s: %q in %q: %s\nwant %q in %q: %s", text, l.Name, dir, argv, want.name, want.dir, want.argv)
		}
	}
	here := t.TempDir()
	if l, dir, err := launcher.Parse("sandbox:" + here); err != nil || l.Name != "sandbox" || dir != here {
		t.Errorf("sandbox: %q, %q, %v", l.Name, dir, err)
	}
}

func TestParseErrors(t *testing.T) {
	// What fits no form is refused with a reason, and none of it becomes an option.
	for text, want := range map[string]string{
		"build":                  "names no environment",
		"telnet://host":          "no kind",
		"ssh://":                 "no name",
		"ssh://u:secret@host":    "password",
		"ssh://host?keys=/k":     "not one of",
		"ssh://host?key=a&key=b": "each once",
		"ssh://-oProxyCommand=x": "option",
		"docker://c1?dir=/x":     "not one of",
		"docker://u@c1":          "more than",
		"kubectl://prod":         "want kubectl",
		"kubectl://prod/n/-x":    "option",
		"kubectl://p/n/x?dir=y":  "relative",
		"sandbox:/no/such/dir":   "no such file",
		"sandbox:/?net=1":        "network=yes",
		"exec:":                  "no command",
		"exec:'":                 "",
	} {
		_, _, err := launcher.Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
