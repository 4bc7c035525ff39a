package agent_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

// Whatever initialize the schema allows, and whatever optional member of it has
// a wrong type, is an initialize: the session that is asked for right behind it
// is made.
func TestInitializeVariants(t *testing.T) {
	variants := []string{`{"protocolVersion":1}`}
	for _, version := range []string{"0", "2", "65535", "1.0", "1e0", "10E-1"} {
		variants = append(variants, `{"protocolVersion":`+version+`}`)
	}
	member := func(format string, values ...string) {
		for _, v := range values {
			variants = append(variants, `{"protocolVersion":1,`+fmt.Sprintf(format, v)+`}`)
		}
	}
	wrong := []string{"null", "true", "7", `"x"`, "[]", "[{}]", "{}", `{"a":{"b":[1,null,"x"]}}`, "1e400", `"\ud800"`}
	member(`"_meta":%s`, wrong...)
	member(`"clientInfo":%s`, wrong...)
	member(`"clientInfo":{"name":"x","version":"1","title":%s}`, wrong...)
	member(`"clientInfo":{"name":"x","version":"1","_meta":%s}`, wrong...)
	member(`"clientInfo":{"name":"x","version":%s}`, wrong...)
	member(`"clientInfo":{"name":%s,"version":"1"}`, wrong...)
	member(`"clientCapabilities":%s`, wrong...)
	for _, name := range []string{
		"_meta", "fs", "terminal", "auth", "elicitation", "nes", "positionEncodings", "session", "noSuchMember",
	} {
		member(`"clientCapabilities":{"`+name+`":%s}`, wrong...)
	}
	member(`"clientCapabilities":{"fs":{"readTextFile":%s,"writeTextFile":true}}`, wrong...)
	member(`"clientCapabilities":{"fs":{"_meta":%s}}`, wrong...)
	member(`"clientCapabilities":{"elicitation":%s}`, `{"form":{}}`, `{"form":null,"url":{}}`, `{"form":7}`)
	member(`"clientCapabilities":{"positionEncodings":%s}`, `["utf-8"]`, `["utf-99",7]`)
	member(`"noSuchMember":%s`, wrong...)
	member(`"clientCapabilities":{"terminal":true},"clientCapabilities":{"terminal":%s}`, "false", "null")
	dir, err := json.Marshal(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		for _, params := range variants {
			lines := wire(t, nil,
				`{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+params+`}`,
				`{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":`+string(dir)+`,"mcpServers":[]}}`)
			for id, want := range map[int]string{1: `"protocolVersion":1`, 2: `"sessionId"`} {
				if got := answerTo(id, lines); !strings.Contains(got, want) {
					t.Errorf("%s: answer %d is %s", params, id, got)
				}
			}
		}
	})
}
