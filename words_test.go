package termbridge_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// homemade are words that this project once used for things that have a name of the
// field, with those names. Go names count whole and by their parts.
var homemade = map[string]string{}

func init() {
	for words, instead := range map[string]string{
		"deaf":                         "ignores SIGTERM; does not read",
		"roll dog":                     "pgid file, watchdog",
		"dismiss dismisses dismissed":  "stop, cancel, remove",
		"seize seizes seized letgo":    "take over, close",
		"stranger strangers":           "unrelated process, unknown terminal",
		"patience impatience":          "grace period",
		"doubt doubts doubtful":        "unconfirmed exit, undecided",
		"hush":                         "cancelDisplay",
		"keeper keepers":               "sink",
		"polite":                       "SIGTERM",
		"chase chases":                 "rescan",
		"halt halts halted halting":    "cancel, stop",
		"house floor floors":           "layers",
		"pacer pacers":                 "rate limiter",
		"shelf shelves ledger ledgers": "registry",
	} {
		for word := range strings.FieldsSeq(words) {
			homemade[word] = instead
		}
	}
}

// allowedWords are the phrases in which such a word is right: names of others, and
// data.
var allowedWords = strings.NewReplacer("PtraceSeize", "", "HOUSE", "", `"house"`, "", "*house*", "")

var (
	wholeName = regexp.MustCompile(`[A-Za-z]+`)
	partName  = regexp.MustCompile(`[A-Z]?[a-z]+`)
)

// TestWords keeps code, tests and docs to one word for one thing, the field's own.
func TestWords(t *testing.T) {
	known := map[string]string{} // each name that was looked at, and its homemade word
	wordIn := func(name string) string {
		word, ok := known[name]
		if !ok {
			for _, part := range append(partName.FindAllString(name, -1), name) {
				if part = strings.ToLower(part); homemade[part] != "" {
					word = part
				}
			}
			known[name] = word
		}
		return word
	}
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || file == "words_test.go" || file == "CHANGELOG.md" || !(strings.HasSuffix(file, ".go") || strings.HasSuffix(file, ".md")):
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(allowedWords.Replace(string(text)), "\n") {
			for _, name := range wholeName.FindAllString(line, -1) {
				if word := wordIn(name); word != "" {
					t.Errorf("%s:%d: not %q but: %s\n\t%s", filepath.ToSlash(file), i+1, word, homemade[word], strings.TrimSpace(line))
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
