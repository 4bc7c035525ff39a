package secrets_test

import (
	"strings"
	"testing"

	"github.com/termbridge/termbridge/internal/secrets"
)

func TestRedact(t *testing.T) {
	// What looks like a secret is not in a log, to its last character; what is none is.
	t.Setenv("REDACT_TEST_TOKEN", "only-here-4711")
	key := "-----BEGIN RSA PRIVATE KEY-----\nMIIEabcdef\nghijkl\n-----END RSA PRIVATE KEY-----"
	for text, secret := range map[string]string{
		"it is only-here-4711, he said":                            "only-here-4711",
		"git clone https://me:hunter2secret@example.org/x.git":     "hunter2secret",
		"curl -H 'Authorization: x' ?api_key=abcdefghijkl0123 end": "abcdefghijkl0123",
		"before " + key + " after":                                 "ghijkl",
		"export GITHUB=ghp_" + strings.Repeat("a1B2", 9):           "a1B2a1B2",
		"AKIAIOSFODNN7EXAMPLE and more":                            "AKIAIOSFODNN7EXAMPLE",
		`{"password": "correct horse"}`:                            "correct",
		"password=firstsecret password=secondsecret":               "secondsecret",
	} {
		got := secrets.Redact(text)
		if strings.Contains(got, secret) || !strings.Contains(got, secrets.Mark) {
			t.Errorf("%q: %q", text, got)
		}
	}
	if got := secrets.Redact("before " + key + " after"); got != "before [redacted] after" {
		t.Errorf("around a key: %q", got)
	}
	for _, text := range []string{"", "go test ./...", "https://example.org/a?b=c", "MAX_TOKENS=4096", "ls -la /home/me/.ssh"} {
		if got := secrets.Redact(text); got != text {
			t.Errorf("%q: %q", text, got)
		}
	}
	if !secrets.Looks("api_token", "abc123def") || secrets.Looks("sessionId", "sess_ABCDEF") {
		t.Error("Looks")
	}
}
