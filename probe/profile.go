package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/termbridge/termbridge/acpterm"
)

// profile makes a row of what was found: the form that is right with every client,
// or a line where only that is.
func (r *Report) profile() (p acpterm.ClientProfile) {
	value := func(name string) string {
		if f := r.Finding(name); f.Verdict != Unknown {
			return f.Value
		}
		return ""
	}
	if r.Client == nil || r.Client.Name == "" || value("command") == "" {
		return p
	}
	p.Name = r.Client.Name
	if v := r.Client.Version; v != "" && strings.TrimLeft(v, "v0123456789.") == "" {
		p.Since = v
	}
	if value("command") == formLine {
		p.Form = acpterm.FormLine
	}
	// One output that was complete is no proof. That the exit waits for the end of the
	// output is.
	p.CompleteAtExit = r.Finding("held-output").Verdict == Deviates && value("output-at-exit") == "complete"
	p.KeepsHead = value("truncation") == "head"
	p.TruncatedUnsure = r.Finding("truncated").Verdict == Deviates
	p.LosesTail = value("output-at-exit") == "lost"
	p.KillsTree = true
	for _, name := range []string{"kill", "kill-children", "kill-stubborn"} {
		p.KillsTree = p.KillsTree && r.Finding(name).Verdict == Pass
	}
	switch value("signal") {
	case "name":
		p.Signals = acpterm.SignalNames
	case "text":
		p.Signals = acpterm.SignalTexts
	case "number":
		p.Signals = acpterm.SignalNumbers
	case "code":
		p.Signals = acpterm.SignalCodes
	}
	var kib int
	switch v := value("default-limit"); {
	case v == "1 MiB":
		p.DefaultLimit = 1 << 20
	case v != "more than 1 MiB":
		if n, _ := fmt.Sscanf(v, "%d KiB", &kib); n == 1 {
			p.DefaultLimit = kib << 10
		}
	}
	for _, f := range r.Deviations() {
		p.Deviations = append(p.Deviations, strings.ToLower(titles[f.Name])+": "+f.Value)
	}
	return p
}

// Save writes the profile to a file, as [acpterm.LoadProfiles] reads it. It replaces a
// file of profiles, and no other.
func (r *Report) Save(file string) error {
	if r.Profile.Name == "" {
		return errors.New("probe: too little is known of the client for a profile")
	}
	if _, err := os.Stat(file); err == nil {
		if _, err := acpterm.LoadProfiles(file); err != nil {
			return fmt.Errorf("probe: %s is not replaced, since it is no file of profiles", file)
		}
	}
	data, err := json.MarshalIndent(map[string]any{"profiles": []acpterm.ClientProfile{r.Profile}}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
