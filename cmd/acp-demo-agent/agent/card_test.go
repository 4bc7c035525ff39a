package agent

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
)

// Every field of a command that changes what it does changes what the user is
// asked about; a field that is new fails here until it does.
func TestCardShowsEveryField(t *testing.T) {
	shown := func(cmd terminal.Command) (title, rawInput string) {
		card := request{verb: verbRun, title: "x", cmd: cmd}.card("/dir")
		b, err := json.Marshal(card.RawInput)
		if err != nil {
			t.Fatal(err)
		}
		return card.Title, string(b)
	}
	usual := terminal.Command{Line: "x", OutputLimit: limits.DefaultResultLimit}
	title, rawInput := shown(usual)
	looks := []string{"TTY", "Size", "Labels"} // how output looks, and the agent's own
	for _, field := range reflect.VisibleFields(reflect.TypeFor[terminal.Command]()) {
		if slices.Contains(looks, field.Name) {
			continue
		}
		cmd := usual
		switch v := reflect.ValueOf(&cmd).Elem().FieldByIndex(field.Index); v.Kind() {
		case reflect.String:
			v.SetString("other")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int, reflect.Int64:
			v.SetInt(1)
		case reflect.Slice:
			v.Set(reflect.ValueOf([]string{"x"}))
		case reflect.Map:
			v.Set(reflect.ValueOf(map[string]string{"A": "b"}))
		default:
			t.Fatalf("%s is a %s", field.Name, v.Kind())
		}
		newTitle, newInput := shown(cmd)
		if newInput == rawInput {
			t.Errorf("%s is not in the rawInput %s", field.Name, newInput)
		}
		if newTitle == title && field.Name != "Line" && field.Name != "OutputLimit" {
			t.Errorf("%s is not in the title %q", field.Name, newTitle)
		}
	}
}
