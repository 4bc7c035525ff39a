package acpwire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coder/acp-go-sdk"
	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/acpwire"
)

// lenient returns what becomes of the params or the result of a method.
func lenient(t *testing.T, method, value string) string {
	t.Helper()
	types, part := acpwire.Params, `"method":"`+method+`","params":`
	if types[method] == nil {
		types, part = acpwire.Results, `"result":`
	}
	before := `{"jsonrpc":"2.0","id":1,` + part
	line, ok := acpwire.Lenient([]byte(before+value+"}\n"), types[method])
	if !ok || types[method] == nil {
		t.Fatalf("%s: no message: %s", method, value)
	}
	rest, found := strings.CutPrefix(string(line), before)
	rest, closed := strings.CutSuffix(rest, "}\n")
	if !found || !closed {
		t.Fatalf("%s became %s", value, line)
	}
	return rest
}

// Members of the wrong type count as what they clearly mean, else as absent: of
// those that are required, the ones of replies only.
func TestLenient(t *testing.T) {
	const (
		initialize = acp.AgentMethodInitialize
		cancel     = acp.AgentMethodSessionCancel
		prompt     = acp.AgentMethodSessionPrompt
		output     = acp.ClientMethodTerminalOutput
		wait       = acp.ClientMethodTerminalWaitForExit
		permission = acp.ClientMethodSessionRequestPermission
	)
	tests := []struct{ method, value, want string }{
		{initialize, `{"protocolVersion":1,"clientCapabilities":[]}`, `{"protocolVersion":1,"clientCapabilities":null}`},
		{initialize, `{"protocolVersion":1,"clientCapabilities":{"fs":[],"terminal":true}}`, `{"protocolVersion":1,"clientCapabilities":{"fs":null,"terminal":true}}`},
		{initialize, `{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":"no","writeTextFile":true},"terminal":"yes"}}`, `{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":null,"writeTextFile":true},"terminal":null}}`},
		{initialize, `{"protocolVersion":1,"clientInfo":"x"}`, `{"protocolVersion":1,"clientInfo":null}`},
		{initialize, `{"protocolVersion":1,"clientInfo":{"name":"zed"}}`, `{"protocolVersion":1,"clientInfo":{"name":"zed"}}`},
		{initialize, `{"protocolVersion":1,"clientInfo":{"name":"zed","version":2}}`, `{"protocolVersion":1,"clientInfo":{"name":"zed","version":"2"}}`},
		{initialize, `{"protocolVersion":1,"clientInfo":{"name":"zed","version":[2]}}`, `{"protocolVersion":1,"clientInfo":null}`},
		{initialize, `{"protocolVersion":1,"clientInfo":{"name":"zed","version":"2","title":3.50}}`, `{"protocolVersion":1,"clientInfo":{"name":"zed","version":"2","title":"3.50"}}`},
		{initialize, `{"protocolVersion":1.0}`, `{"protocolVersion":1}`},
		{initialize, `{"protocolVersion":"1"}`, `{"protocolVersion":1}`},
		{initialize, `{"protocolVersion":"2025-06-18"}`, `{"protocolVersion":null}`},
		{initialize, `{"protocolVersion":[1],"clientCapabilities":{"terminal":"true","fs":{"readTextFile":1}}}`, `{"protocolVersion":null,"clientCapabilities":{"terminal":null,"fs":{"readTextFile":null}}}`},
		{initialize, `[]`, `{}`},
		{initialize, `{"\u0070rotocolVersion":2e0}`, `{"\u0070rotocolVersion":2}`},
		{initialize, `{"protocolVersion":1.5}`, `{"protocolVersion":null}`},
		{initialize, `{"PROTOCOLVERSION":1,"clientc\u0061pabilities":7,"clientInfo":false,"other":[{}]}`, `{"PROTOCOLVERSION":1,"clientc\u0061pabilities":null,"clientInfo":null,"other":[{}]}`},
		{cancel, `{"sessionId":"s","_meta":[]}`, `{"sessionId":"s","_meta":null}`},
		{cancel, `{"sessionId":7,"_meta":[]}`, `{"sessionId":"7","_meta":null}`},
		{cancel, `{"sessionId":{},"_meta":[]}`, `{"sessionId":{},"_meta":[]}`},
		{cancel, `{"sessionId":true}`, `{"sessionId":true}`},
		{cancel, ` [ ] `, ` [ ] `},
		{prompt, `{"sessionId":"s","prompt":[{"type":"text","text":"a","annotations":[]},{"type":"text","text":"b"}]}`, `{"sessionId":"s","prompt":[{"type":"text","text":"a","annotations":null},{"type":"text","text":"b"}]}`},
		{prompt, `{"sessionId":"s","prompt":[{"type":"text","text":"a","annotations":{"audience":[1,"user",{},"assistant",true,[]],"priority":"0.5","lastModified":{}}}]}`, `{"sessionId":"s","prompt":[{"type":"text","text":"a","annotations":{"audience":["user","assistant"],"priority":0.5,"lastModified":null}}]}`},
		{prompt, `{"sessionId":"s","prompt":[{"type":"text","text":"a","annotations":{"audience":[1 , 2]}}]}`, `{"sessionId":"s","prompt":[{"type":"text","text":"a","annotations":{"audience":[]}}]}`},
		{prompt, `{"sessionId":"s","prompt":[{"type":"text","text":"a","annotations":{"audience":[ 1 , "user" , 2 , 3 ]}}]}`, `{"sessionId":"s","prompt":[{"type":"text","text":"a","annotations":{"audience":[ "user" ]}}]}`},
		{prompt, `{"sessionId":"s","prompt":[{"type":"resource","resource":{"uri":"file:///x","text":"y","mimeType":[]},"_meta":"z"}]}`, `{"sessionId":"s","prompt":[{"type":"resource","resource":{"uri":"file:///x","text":"y","mimeType":null},"_meta":null}]}`},
		{prompt, `{"sessionId":"s","prompt":[{"type":"resource_link","name":"n","uri":"u","size":"12"}]}`, `{"sessionId":"s","prompt":[{"type":"resource_link","name":"n","uri":"u","size":12}]}`},
		{prompt, `{"sessionId":"s","prompt":[{"type":"text","text":5,"annotations":[]}]}`, `{"sessionId":"s","prompt":[{"type":"text","text":"5","annotations":null}]}`},
		{prompt, `{"sessionId":12,"prompt":[{"type":"resource_link","name":1,"uri":"u"},{"type":"resource","resource":{"uri":"u","text":2}}]}`, `{"sessionId":"12","prompt":[{"type":"resource_link","name":"1","uri":"u"},{"type":"resource","resource":{"uri":"u","text":"2"}}]}`},
		{prompt, `{"sessionId":"s","prompt":[{"type":"text","text":{},"annotations":[]}]}`, `{"sessionId":"s","prompt":[{"type":"text","text":{},"annotations":[]}]}`},
		{prompt, `{"sessionId":"s","prompt":{ }}`, `{"sessionId":"s","prompt":[]}`},
		{prompt, `{"sessionId":"s","prompt":{"a":1}}`, `{"sessionId":"s","prompt":{"a":1}}`},
		{output, `{"output":"x","truncated":false,"exitStatus":{"signal":9}}`, `{"output":"x","truncated":false,"exitStatus":{"signal":"9"}}`},
		{output, `{"output":"x","truncated":false,"exitStatus":{"exitCode":"0"}}`, `{"output":"x","truncated":false,"exitStatus":{"exitCode":0}}`},
		{output, `{"output":"x","truncated":false,"exitStatus":{"exitCode":" 3.0 "}}`, `{"output":"x","truncated":false,"exitStatus":{"exitCode":3}}`},
		{output, `{"output":"x","truncated":false,"exitStatus":{"exitCode":"no","signal":null}}`, `{"output":"x","truncated":false,"exitStatus":{"exitCode":null,"signal":null}}`},
		{output, `{"output":"x","truncated":false,"exitStatus":[]}`, `{"output":"x","truncated":false,"exitStatus":null}`},
		{output, `{"output":"x","truncated":false,"exitStatus":0}`, `{"output":"x","truncated":false,"exitStatus":null}`},
		{output, `{"output":7,"truncated":false,"exitStatus":0}`, `{"output":"7","truncated":false,"exitStatus":null}`},
		{output, `{"output":"x","truncated":"true"}`, `{"output":"x","truncated":true}`},
		{output, `{"output":"x","truncated":" False "}`, `{"output":"x","truncated":false}`},
		{output, `{"output":"x","truncated":"1"}`, `{"output":"x","truncated":true}`},
		{output, `{"output":"x","truncated":0}`, `{"output":"x","truncated":false}`},
		{output, `{"output":"x","truncated":0.5}`, `{"output":"x","truncated":true}`},
		{output, `{"output":"x","truncated":"no"}`, `{"output":"x","truncated":null}`},
		{output, `{"output":"x","truncated":{"bytes":3},"exitStatus":{"exitCode":0}}`, `{"output":"x","truncated":null,"exitStatus":{"exitCode":0}}`},
		{output, `{"output":["x"],"truncated":[],"exitStatus":{"exitCode":"3"}}`, `{"output":null,"truncated":null,"exitStatus":{"exitCode":3}}`},
		{output, `"x"`, `"x"`},
		{wait, `{"exitCode":1.0}`, `{"exitCode":1}`},
		{wait, `{"exitCode":1e2,"signal":true}`, `{"exitCode":100,"signal":null}`},
		{wait, `{"exitCode":3221225477,"signal":[]}`, `{"exitCode":3221225477,"signal":null}`},
		{wait, `{"exitCode":-9,"signal":{}}`, `{"exitCode":-9,"signal":null}`},
		{wait, `{"exitCode":99999999999999999999}`, `{"exitCode":null}`},
		{wait, `{"exitCode":1e999}`, `{"exitCode":null}`},
		{wait, `{"exitCode":""}`, `{"exitCode":null}`},
		{wait, `[]`, `{}`},
		{acp.ClientMethodTerminalKill, `true`, `{}`},
		{acp.ClientMethodTerminalRelease, `""`, `{}`},
		{acp.ClientMethodTerminalCreate, `[]`, `{}`},
		{acp.ClientMethodTerminalCreate, `{"terminalId":5}`, `{"terminalId":"5"}`},
		{acp.ClientMethodTerminalCreate, `{"terminalId":-1.50,"_meta":[]}`, `{"terminalId":"-1.50","_meta":null}`},
		{acp.ClientMethodTerminalCreate, `{"terminalId":{"id":5}}`, `{"terminalId":null}`},
		{acp.ClientMethodTerminalCreate, `{"terminalId":false}`, `{"terminalId":null}`},
		{acp.ClientMethodFsReadTextFile, `{"content":1e3}`, `{"content":"1e3"}`},
		{permission, `{"outcome":{"outcome":"selected","optionId":"allow","_meta":[]},"_meta":1}`, `{"outcome":{"outcome":"selected","optionId":"allow","_meta":null},"_meta":null}`},
		{permission, `{"outcome":{"outcome":"cancelled","_meta":""}}`, `{"outcome":{"outcome":"cancelled","_meta":""}}`}, // which the SDK does not read
		{permission, `{"outcome":{"outcome":"selected","optionId":5}}`, `{"outcome":{"outcome":"selected","optionId":"5"}}`},
		{permission, `{"outcome":{"outcome":"selected","optionId":{}}}`, `{"outcome":null}`},
		{permission, `{"outcome":"cancelled"}`, `{"outcome":null}`},
		{permission, `true`, `{}`},
		{acp.AgentMethodSessionSetConfigOption, `{"sessionId":"s","configId":"c","value":"v","_meta":[1]}`, `{"sessionId":"s","configId":"c","value":"v","_meta":null}`},
		{acp.AgentMethodSessionNew, `{"cwd":"/","mcpServers":[{"name":"n","command":"c","args":[],"env":[{"name":"a","value":"b","_meta":0}],"_meta":0}]}`, `{"cwd":"/","mcpServers":[{"name":"n","command":"c","args":[],"env":[{"name":"a","value":"b","_meta":null}],"_meta":null}]}`},
		{acp.AgentMethodSessionNew, `{"cwd":7,"mcpServers":{}}`, `{"cwd":"7","mcpServers":[]}`},
		{acp.AgentMethodSessionNew, `{"cwd":"/","mcpServers":[{"name":"n","command":"c","args":{},"env":{}}]}`, `{"cwd":"/","mcpServers":[{"name":"n","command":"c","args":[],"env":[]}]}`},
		{acp.AgentMethodSessionList, `[]`, `{}`},
		{acp.AgentMethodSessionList, `null`, `null`},
	}
	for _, test := range tests {
		if got := lenient(t, test.method, test.value); got != test.want {
			t.Errorf("%s\n%s became\n%s, want\n%s", test.method, test.value, got, test.want)
		}
	}
}

// An error reply that the SDK could not read would leave its request without an
// answer.
func TestLenientErrors(t *testing.T) {
	for line, want := range map[string]string{
		`{"id":1,"error":"no"}`:  `{"id":1,"error":{"code":-32603,"message":"no"}}`,
		`{"id":1,"error":[7]}`:   `{"id":1,"error":{"code":-32603,"message":"[7]"}}`,
		`{"error":false,"id":1}`: `{"error":{"code":-32603,"message":"false"},"id":1}`,
		`{"id":1,"error":{"code":"-32601","message":"x","data":[1]}}`:   `{"id":1,"error":{"code":-32601,"message":"x","data":[1]}}`,
		`{"id":1,"error":{"code":[],"message":{"a":1}}}`:                `{"id":1,"error":{"code":null,"message":null}}`,
		`{"id":1,"error":null,"result":{}}`:                             `{"id":1,"error":null,"result":{}}`,
		`{"jsonrpc":2.0,"id":1,"result":{"terminalId":"1","_meta":[]}}`: `{"jsonrpc":"2.0","id":1,"result":{"terminalId":"1","_meta":null}}`,
		`{"result":{"terminalId":"1","_meta":[]},"jsonrpc":2,"id":1}`:   `{"result":{"terminalId":"1","_meta":null},"jsonrpc":"2.0","id":1}`,
	} {
		got, ok := acpwire.Lenient([]byte(line), acpwire.Results[acp.ClientMethodTerminalCreate])
		if !ok || string(got) != want {
			t.Errorf("%s became\n%s, want\n%s", line, got, want)
		}
	}
}

// What does not fit reaches the agent as absent.
func TestLenientConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log locked
		w := connect(t, options(&log))
		for range 2 {
			w.send(`{"jsonrpc":2,"id":1,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"terminal":true,"fs":[]},"clientInfo":"x"}}`)
			if line := w.line(); !strings.Contains(line, `"id":1,"result":{`) {
				t.Fatal(line)
			}
		}
		got := w.agent.init[0]
		if !got.ClientCapabilities.Terminal || got.ClientInfo != nil {
			t.Errorf("the agent is told %+v", got)
		}
		w.send(strings.Replace(prompt("1", "s", "wait 1s"), `"text":`, `"annotations":[],"text":`, 1))
		if got := w.answers(1)["1"]; got != ended {
			t.Errorf("the prompt is answered %s", got)
		}
		// Each kind is logged once.
		for _, member := range []string{"jsonrpc", "fs", "clientInfo", "annotations"} {
			if n := strings.Count(log.String(), "member="+member+" readAs="); n != 1 {
				t.Errorf("%s is logged %d times:\n%s", member, n, log.String())
			}
		}
	})
}

// What is a message here is one for encoding/json, and nothing else is: every
// text of some characters, and every byte at every place of a string.
func TestMessagesAsJSON(t *testing.T) {
	check := func(value string) {
		line := []byte(`{"id":1,"result":` + value + `}`)
		if _, ok := acpwire.Lenient(line, nil); ok != json.Valid(line) {
			t.Errorf("%q is a message: %v", line, ok)
		}
		if _, ok := acpwire.Lenient([]byte(value), nil); ok && !json.Valid([]byte(value)) {
			t.Errorf("%q is a message", value)
		}
	}
	var all func(text string, alphabet string, left int)
	all = func(text string, alphabet string, left int) {
		check(text)
		for i := range alphabet {
			if left > 0 {
				all(text+alphabet[i:i+1], alphabet, left-1)
			}
		}
	}
	all("", "-+.eE01", 5)
	all("", `{}[]",: `, 5)
	all(`"\`, `"\u0aFn`, 5)
	for _, word := range []string{"true", "false", "null"} {
		for i := range len(word) + 1 {
			check(word[:i])
			check(word[:i] + "x" + word[i:])
			check("[" + word[:i])
		}
	}
	for c := range 256 {
		for i := range 20 {
			b := []byte(`"aaaaaaaaaaaaaaaaaaaa"`)
			b[i+1] = byte(c)
			check(string(b))
			check(`"\u00e` + string([]byte{byte(c)}) + `"`)
		}
	}
}

// A schema is a definition of the schema of ACP.
type schema struct {
	Ref                  string `json:"$ref"`
	Type                 any
	Properties           map[string]*schema
	Required             []string
	AllOf, AnyOf, OneOf  []*schema
	Items                *schema
	AdditionalProperties any
	Const                any
	Enum                 []any
	Minimum, Maximum     *float64
	Method               string `json:"x-method"`
	Side                 string `json:"x-side"`
}

// definitions returns the schema that the SDK was made from.
func definitions(t *testing.T) map[string]*schema {
	t.Helper()
	f := runtime.FuncForPC(reflect.ValueOf(acp.NewConnection).Pointer())
	source, _ := f.FileLine(f.Entry())
	file := filepath.Join(filepath.Dir(source), "schema", "schema.unstable.json")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Skipf("the SDK's sources are not where it was built from (-trimpath?): %v", err)
	}
	var s struct {
		Defs map[string]*schema `json:"$defs"`
	}
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	return s.Defs
}

// typeName is the name of the SDK's type of a definition.
func named(t reflect.Type) string { return strings.TrimPrefix(t.Name(), "Unstable") }

// The tables have each method of the schema that the SDK has, with its type.
func TestLenientKnowsEveryMethod(t *testing.T) {
	defs := definitions(t)
	for name, d := range defs {
		response := strings.HasSuffix(name, "Response")
		table := acpwire.Params
		switch {
		case d.Method == "mcp/message": // the SDK hands that one to nobody
			continue
		case d.Side == "client" && response:
			table = acpwire.Results
		case d.Side == "client":
			table = acpwire.ClientParams
		case d.Side != "agent" || response:
			continue
		}
		if typ := table[d.Method]; typ == nil || named(typ) != name {
			t.Errorf("%s of %s: %v", name, d.Method, typ)
		}
	}
	for _, table := range []map[string]reflect.Type{acpwire.Params, acpwire.Results, acpwire.ClientParams} {
		for method, typ := range table {
			if d := defs[named(typ)]; d == nil || d.Method != method {
				t.Errorf("%s: %v is not in the schema", method, typ)
			}
		}
	}
}

// A maker makes messages by the schema.
type maker struct {
	*rand.Rand
	defs map[string]*schema
}

// flat resolves references, and one alternative where there are several.
func (m *maker) flat(s *schema) *schema {
	for s.Ref != "" {
		s = m.defs[strings.TrimPrefix(s.Ref, "#/$defs/")]
	}
	parts := slices.Clone(s.AllOf)
	for _, choice := range [][]*schema{s.AnyOf, s.OneOf} {
		if len(choice) > 0 {
			parts = append(parts, choice[m.IntN(len(choice))])
		}
	}
	if len(parts) == 0 {
		return s
	}
	all := *s
	all.AllOf, all.AnyOf, all.OneOf = nil, nil, nil
	all.Properties = maps.Clone(s.Properties)
	if all.Properties == nil {
		all.Properties = map[string]*schema{}
	}
	for _, p := range parts {
		p = m.flat(p)
		for name, prop := range p.Properties {
			if all.Properties[name] == nil {
				all.Properties[name] = prop
			}
		}
		all.Required = append(slices.Clone(all.Required), p.Required...)
		if all.Type == nil {
			all.Type = p.Type
		}
		if all.Items == nil {
			all.Items = p.Items
		}
		if all.Const == nil {
			all.Const = p.Const
		}
		if all.Enum == nil {
			all.Enum = p.Enum
		}
		if all.Minimum == nil {
			all.Minimum, all.Maximum = p.Minimum, p.Maximum
		}
	}
	return &all
}

// types returns the types that a flat schema allows.
func types(s *schema) (all []string) {
	switch t := s.Type.(type) {
	case string:
		all = []string{t}
	case []any:
		for _, t := range t {
			all = append(all, t.(string))
		}
	}
	if len(all) == 0 && len(s.Properties) > 0 {
		all = []string{"object"}
	}
	return all
}

// allTypes returns the types that a schema allows in any of its alternatives.
func (m *maker) allTypes(s *schema) []string {
	for s.Ref != "" {
		s = m.defs[strings.TrimPrefix(s.Ref, "#/$defs/")]
	}
	all := types(s)
	for _, parts := range [][]*schema{s.AllOf, s.AnyOf, s.OneOf} {
		for _, p := range parts {
			all = append(all, m.allTypes(p)...)
		}
	}
	return all
}

// A site is a member of a made value that may get another one.
type site struct {
	object map[string]any
	name   string
	types  []string
	drop   func() // takes away the smallest part that may be missing and has the member in it; nil if there is none
}

// topMember returns the member of the outermost object that a site is in.
func topMember(object map[string]any, s site) string {
	if reflect.ValueOf(object).Pointer() == reflect.ValueOf(s.object).Pointer() {
		return s.name
	}
	for name, value := range object {
		if contains(value, s.object) {
			return name
		}
	}
	panic("no such site")
}

// contains reports whether an object is in a made value.
func contains(value any, object map[string]any) bool {
	switch value := value.(type) {
	case map[string]any:
		if reflect.ValueOf(object).Pointer() == reflect.ValueOf(value).Pointer() {
			return true
		}
		return slices.ContainsFunc(slices.Collect(maps.Values(value)), func(v any) bool { return contains(v, object) })
	case *items:
		return slices.ContainsFunc(value.all, func(v any) bool { return contains(v, object) })
	}
	return false
}

// make makes a value, and notes its members. Drop takes away the smallest part
// around the value that may be missing, spare says that its items may be.
func (m *maker) make(s *schema, depth int, spare bool, drop func(), sites *[]site) any {
	s = m.flat(s)
	if s.Const != nil {
		return s.Const
	}
	if len(s.Enum) > 0 {
		return s.Enum[m.IntN(len(s.Enum))]
	}
	all := types(s)
	if len(all) == 0 {
		return []any{map[string]any{"any": "thing"}}
	}
	switch all[m.IntN(len(all))] {
	case "null":
		return nil
	case "boolean":
		return m.IntN(2) == 0
	case "integer":
		return m.IntN(100)
	case "number":
		return float64(m.IntN(100)) / 8
	case "array":
		list := &items{}
		for range m.IntN(3) {
			drop := drop
			if spare {
				n := len(list.all)
				drop = func() { list.dropped = n + 1 }
			}
			list.all = append(list.all, m.make(s.Items, depth+1, false, drop, sites))
		}
		return list
	case "object":
		object := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			required := slices.Contains(s.Required, name)
			if !required && (depth > 8 || m.IntN(3) == 0) {
				continue
			}
			drop := drop
			if !required {
				drop = func() { delete(object, name) }
			}
			object[name] = m.make(s.Properties[name], depth+1, !required, drop, sites)
			if m.flat(s.Properties[name]).Const == nil {
				*sites = append(*sites, site{object, name, m.allTypes(s.Properties[name]), drop})
			}
		}
		if s.AdditionalProperties == true {
			object["x-\"\\\u00e9"] = []any{1, "two\n\u001b", nil}
		}
		return object
	}
	return []string{"", "a", "two\n\u001b[0m", "\u00e9\"\\"}[m.IntN(4)]
}

// items are a list of which one may be left out.
type items struct {
	all     []any
	dropped int // from 1; 0 is none
}

func (i *items) MarshalJSON() ([]byte, error) {
	all := slices.Clone(i.all)
	if i.dropped > 0 {
		all = slices.Delete(all, i.dropped-1, i.dropped)
	}
	return json.Marshal(append([]any{}, all...))
}

// wrong returns a value of a type that is none of these, and that means nothing
// else.
func (m *maker) wrong(types []string) any {
	values := map[string][]any{
		"boolean": {true, false},
		"number":  {7, -1.5, 1e300},
		"string":  {"", "x", "\u00e9"},
		"array":   {[]any{2}, []any{1}, []any{map[string]any{"a": nil}}}, // empty ones mean empty objects
		"object":  {map[string]any{"b": nil}, map[string]any{"a": 1}},
	}
	for _, t := range types {
		switch t {
		case "integer", "number":
			delete(values, "number")
		case "string":
			delete(values, "number") // its digits
			delete(values, "string")
		case "boolean":
			delete(values, "number") // is it 0?
			delete(values, "boolean")
		default:
			delete(values, t)
		}
	}
	if len(values) == 0 {
		return nil
	}
	kinds := slices.Sorted(maps.Keys(values))
	of := values[kinds[m.IntN(len(kinds))]]
	return of[m.IntN(len(of))]
}

// Messages that the schema allows pass byte for byte, and decode. With optional
// members of wrong types at any depth they decode as without those.
func TestLenientBySchema(t *testing.T) {
	m := &maker{rand.New(rand.NewPCG(7, 7)), definitions(t)}
	tested := 0
	for i, table := range []map[string]reflect.Type{acpwire.Params, acpwire.Results, acpwire.ClientParams} {
		reply := i == 1
		part := "params"
		if reply {
			part = "result"
		}
		for _, method := range slices.Sorted(maps.Keys(table)) {
			typ := table[method]
			for range 300 {
				var sites []site
				value := m.make(m.defs[named(typ)], 0, false, nil, &sites)
				if object, ok := value.(map[string]any); ok && (reply || method == acp.AgentMethodInitialize) {
					// Its required members may be absent.
					for i, s := range sites {
						if s.drop == nil {
							name := topMember(object, s)
							sites[i].drop = func() { object[name] = nil }
						}
					}
				}
				line := func() []byte {
					msg := map[string]any{"jsonrpc": "2.0", "id": 1, part: value}
					if !reply {
						msg["method"] = method
					}
					b, err := json.Marshal(msg)
					if err != nil {
						t.Fatal(err)
					}
					return b
				}
				decode := func(line []byte) (any, error) {
					var msg struct{ Params, Result json.RawMessage }
					if err := json.Unmarshal(line, &msg); err != nil {
						t.Fatalf("%v: %s", err, line)
					}
					v := reflect.New(typ)
					err := json.Unmarshal(append(msg.Params, msg.Result...), v.Interface())
					return v.Interface(), err
				}
				valid := line()
				got, ok := acpwire.Lenient(valid, typ)
				if !ok || !bytes.Equal(got, valid) {
					t.Errorf("%s: a valid message became\n%s, from\n%s", method, got, valid)
				}
				if _, err := decode(valid); err != nil {
					continue // the SDK does not follow the schema here
				}
				if len(sites) == 0 {
					continue
				}
				bad := sites[m.IntN(len(sites))]
				wrong := m.wrong(bad.types)
				if wrong == nil || len(bad.types) == 0 {
					continue
				}
				bad.object[bad.name] = wrong
				broken := line()
				if _, err := decode(broken); err == nil {
					continue // the SDK takes it
				}
				got, _ = acpwire.Lenient(broken, typ)
				if bad.drop == nil {
					if _, err := decode(got); err == nil && !bytes.Equal(got, broken) && acpwire.Requires(typ) {
						t.Fatalf("%s: %s of the wrong type, which must be there\n%s\nbecame\n%s", method, bad.name, broken, got)
					}
					continue
				}
				bad.drop()
				without := line()
				want, err := decode(without)
				if err != nil {
					continue
				}
				tested++
				result, err := decode(got)
				if diff := cmp.Diff(want, result); err != nil || diff != "" {
					t.Fatalf("%s: %s of the wrong type: %v\n%s\nbecame\n%s\n(-want +got)\n%s", method, bad.name, err, broken, got, diff)
				}
			}
		}
	}
	t.Logf("%d messages were broken", tested)
	if tested < 2000 {
		t.Errorf("only %d messages were broken", tested)
	}
}

// Whatever comes, the SDK can read what is passed on, a valid value is the same
// value afterwards, and what needs no change is not changed.
func FuzzLenient(f *testing.F) {
	var all []reflect.Type
	for _, table := range []map[string]reflect.Type{acpwire.Params, acpwire.Results, acpwire.ClientParams} {
		for _, method := range slices.Sorted(maps.Keys(table)) {
			all = append(all, table[method])
		}
	}
	for i, seed := range []string{
		`{"protocolVersion":1.0,"clientCapabilities":{"fs":[]}}`,
		`{"sessionId":"s","prompt":[{"type":"text","text":"a","annotations":{"audience":[1,"user",2]}}]}`,
		`{"output":"x\u001b\n","truncated":false,"exitStatus":{"exitCode":"0","signal":9}}`,
		`{"outcome":{"outcome":"selected","optionId":"a","_meta":[]}}`, `[[[]]]`, `"\ud800"`, `-0.0e-1`, "{\"a\":\"\x80\"}",
	} {
		for j := range all {
			f.Add(uint8(i+j), seed)
		}
	}
	f.Fuzz(func(t *testing.T, n uint8, value string) {
		typ := all[int(n)%len(all)]
		line := fmt.Appendf(nil, `{"id":1,"result":%s}`, value)
		got, ok := acpwire.Lenient(line, typ)
		var msg struct {
			ID     *json.RawMessage `json:"id,omitempty"`
			Method string           `json:"method,omitempty"`
			Result json.RawMessage  `json:"result,omitempty"`
			Error  *acp.RequestError
		}
		err := json.Unmarshal(got, &msg)
		switch {
		case !ok && json.Valid(line) && len(bytes.TrimSpace(line)) > 0:
			t.Fatalf("valid, but no message: %q", line)
		case !ok:
			return
		case err != nil:
			t.Fatalf("the SDK cannot read %q, from %q: %v", got, line, err)
		}
		var before struct{ Result json.RawMessage }
		if json.Unmarshal(line, &before) != nil {
			return // "error" of the wrong type, or so
		}
		a, b := reflect.New(typ), reflect.New(typ)
		if json.Unmarshal(before.Result, a.Interface()) == nil && before.Result != nil {
			if err := json.Unmarshal(msg.Result, b.Interface()); err != nil {
				t.Fatalf("%q decodes, %q does not: %v", line, got, err)
			}
			if !bytes.Equal(line, got) {
				t.Fatalf("%q became %q", line, got)
			}
		}
	})
}
