package acpwire

import (
	"context"
	"reflect"

	"github.com/coder/acp-go-sdk"
)

// params are the types of the requests and notifications that a client sends.
var params = map[string]reflect.Type{
	acp.AgentMethodAuthenticate:           reflect.TypeFor[acp.AuthenticateRequest](),
	acp.AgentMethodDocumentDidChange:      reflect.TypeFor[acp.UnstableDidChangeDocumentNotification](),
	acp.AgentMethodDocumentDidClose:       reflect.TypeFor[acp.UnstableDidCloseDocumentNotification](),
	acp.AgentMethodDocumentDidFocus:       reflect.TypeFor[acp.UnstableDidFocusDocumentNotification](),
	acp.AgentMethodDocumentDidOpen:        reflect.TypeFor[acp.UnstableDidOpenDocumentNotification](),
	acp.AgentMethodDocumentDidSave:        reflect.TypeFor[acp.UnstableDidSaveDocumentNotification](),
	acp.AgentMethodInitialize:             reflect.TypeFor[acp.InitializeRequest](),
	acp.AgentMethodLogout:                 reflect.TypeFor[acp.UnstableLogoutRequest](),
	acp.AgentMethodNesAccept:              reflect.TypeFor[acp.UnstableAcceptNesNotification](),
	acp.AgentMethodNesClose:               reflect.TypeFor[acp.UnstableCloseNesRequest](),
	acp.AgentMethodNesReject:              reflect.TypeFor[acp.UnstableRejectNesNotification](),
	acp.AgentMethodNesStart:               reflect.TypeFor[acp.UnstableStartNesRequest](),
	acp.AgentMethodNesSuggest:             reflect.TypeFor[acp.UnstableSuggestNesRequest](),
	acp.AgentMethodProvidersDisable:       reflect.TypeFor[acp.UnstableDisableProvidersRequest](),
	acp.AgentMethodProvidersList:          reflect.TypeFor[acp.UnstableListProvidersRequest](),
	acp.AgentMethodProvidersSet:           reflect.TypeFor[acp.UnstableSetProvidersRequest](),
	acp.AgentMethodSessionCancel:          reflect.TypeFor[acp.CancelNotification](),
	acp.AgentMethodSessionClose:           reflect.TypeFor[acp.CloseSessionRequest](),
	acp.AgentMethodSessionFork:            reflect.TypeFor[acp.UnstableForkSessionRequest](),
	acp.AgentMethodSessionList:            reflect.TypeFor[acp.ListSessionsRequest](),
	acp.AgentMethodSessionLoad:            reflect.TypeFor[acp.LoadSessionRequest](),
	acp.AgentMethodSessionNew:             reflect.TypeFor[acp.NewSessionRequest](),
	acp.AgentMethodSessionPrompt:          reflect.TypeFor[acp.PromptRequest](),
	acp.AgentMethodSessionResume:          reflect.TypeFor[acp.ResumeSessionRequest](),
	acp.AgentMethodSessionSetConfigOption: reflect.TypeFor[acp.SetSessionConfigOptionRequest](),
	acp.AgentMethodSessionSetMode:         reflect.TypeFor[acp.SetSessionModeRequest](),
	acp.AgentMethodSessionSetModel:        reflect.TypeFor[acp.UnstableSetSessionModelRequest](),
}

// optional are the notifications that an agent need not take, and how to see that
// it does.
var optional = map[string]func(acp.Agent) bool{
	acp.AgentMethodDocumentDidChange: has[interface {
		UnstableDidChangeDocument(context.Context, acp.UnstableDidChangeDocumentNotification) error
	}],
	acp.AgentMethodDocumentDidClose: has[interface {
		UnstableDidCloseDocument(context.Context, acp.UnstableDidCloseDocumentNotification) error
	}],
	acp.AgentMethodDocumentDidFocus: has[interface {
		UnstableDidFocusDocument(context.Context, acp.UnstableDidFocusDocumentNotification) error
	}],
	acp.AgentMethodDocumentDidOpen: has[interface {
		UnstableDidOpenDocument(context.Context, acp.UnstableDidOpenDocumentNotification) error
	}],
	acp.AgentMethodDocumentDidSave: has[interface {
		UnstableDidSaveDocument(context.Context, acp.UnstableDidSaveDocumentNotification) error
	}],
	acp.AgentMethodNesAccept: has[interface {
		UnstableAcceptNes(context.Context, acp.UnstableAcceptNesNotification) error
	}],
	acp.AgentMethodNesReject: has[interface {
		UnstableRejectNes(context.Context, acp.UnstableRejectNesNotification) error
	}],
}

// has reports whether an agent has the methods of T.
func has[T any](a acp.Agent) bool {
	_, ok := a.(T)
	return ok
}

// results are the types of the results of what an agent asks a client.
var results = map[string]reflect.Type{
	acp.ClientMethodElicitationCreate:        reflect.TypeFor[acp.UnstableCreateElicitationResponse](),
	acp.ClientMethodFsReadTextFile:           reflect.TypeFor[acp.ReadTextFileResponse](),
	acp.ClientMethodFsWriteTextFile:          reflect.TypeFor[acp.WriteTextFileResponse](),
	acp.ClientMethodMcpConnect:               reflect.TypeFor[acp.UnstableConnectMcpResponse](),
	acp.ClientMethodMcpDisconnect:            reflect.TypeFor[acp.UnstableDisconnectMcpResponse](),
	acp.ClientMethodSessionRequestPermission: reflect.TypeFor[acp.RequestPermissionResponse](),
	acp.ClientMethodTerminalCreate:           reflect.TypeFor[acp.CreateTerminalResponse](),
	acp.ClientMethodTerminalKill:             reflect.TypeFor[acp.KillTerminalResponse](),
	acp.ClientMethodTerminalOutput:           reflect.TypeFor[acp.TerminalOutputResponse](),
	acp.ClientMethodTerminalRelease:          reflect.TypeFor[acp.ReleaseTerminalResponse](),
	acp.ClientMethodTerminalWaitForExit:      reflect.TypeFor[acp.WaitForTerminalExitResponse](),
}
