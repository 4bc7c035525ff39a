package acpwire

import (
	"reflect"

	"github.com/coder/acp-go-sdk"
)

// clientParams are the types of the requests and notifications that an agent
// sends.
var clientParams = map[string]reflect.Type{
	acp.ClientMethodElicitationComplete:      reflect.TypeFor[acp.UnstableCompleteElicitationNotification](),
	acp.ClientMethodElicitationCreate:        reflect.TypeFor[acp.UnstableCreateElicitationRequest](),
	acp.ClientMethodFsReadTextFile:           reflect.TypeFor[acp.ReadTextFileRequest](),
	acp.ClientMethodFsWriteTextFile:          reflect.TypeFor[acp.WriteTextFileRequest](),
	acp.ClientMethodMcpConnect:               reflect.TypeFor[acp.UnstableConnectMcpRequest](),
	acp.ClientMethodMcpDisconnect:            reflect.TypeFor[acp.UnstableDisconnectMcpRequest](),
	acp.ClientMethodSessionRequestPermission: reflect.TypeFor[acp.RequestPermissionRequest](),
	acp.ClientMethodSessionUpdate:            reflect.TypeFor[acp.SessionNotification](),
	acp.ClientMethodTerminalCreate:           reflect.TypeFor[acp.CreateTerminalRequest](),
	acp.ClientMethodTerminalKill:             reflect.TypeFor[acp.KillTerminalRequest](),
	acp.ClientMethodTerminalOutput:           reflect.TypeFor[acp.TerminalOutputRequest](),
	acp.ClientMethodTerminalRelease:          reflect.TypeFor[acp.ReleaseTerminalRequest](),
	acp.ClientMethodTerminalWaitForExit:      reflect.TypeFor[acp.WaitForTerminalExitRequest](),
}

// ForClient returns a line of an agent's as the SDK takes it in a client: optional
// members of the wrong type count as absent, as [Connect] has it in an agent. A
// line that needs no change, or is no request and no notification, is returned as
// it is.
func ForClient(line []byte) []byte {
	m, err := parse(line)
	if err != nil || m.method == "" {
		return line
	}
	m.lenient(clientParams[m.method])
	m.rewrite()
	return m.line
}
