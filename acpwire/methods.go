package acpwire

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"

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

// A handler takes the params of a notification.
type handler func(context.Context, json.RawMessage) error

// notifications are those that an agent need not take, and how to find what takes
// them in an agent: nil if nothing does.
var notifications = map[string]func(acp.Agent) handler{
	acp.AgentMethodDocumentDidChange: takes(didChangeDocumenter.UnstableDidChangeDocument),
	acp.AgentMethodDocumentDidClose:  takes(didCloseDocumenter.UnstableDidCloseDocument),
	acp.AgentMethodDocumentDidFocus:  takes(didFocusDocumenter.UnstableDidFocusDocument),
	acp.AgentMethodDocumentDidOpen:   takes(didOpenDocumenter.UnstableDidOpenDocument),
	acp.AgentMethodDocumentDidSave:   takes(didSaveDocumenter.UnstableDidSaveDocument),
	acp.AgentMethodNesAccept:         takes(acceptNeser.UnstableAcceptNes),
	acp.AgentMethodNesReject:         takes(rejectNeser.UnstableRejectNes),
}

// What takes each of them.
type (
	didChangeDocumenter interface {
		UnstableDidChangeDocument(context.Context, acp.UnstableDidChangeDocumentNotification) error
	}
	didCloseDocumenter interface {
		UnstableDidCloseDocument(context.Context, acp.UnstableDidCloseDocumentNotification) error
	}
	didFocusDocumenter interface {
		UnstableDidFocusDocument(context.Context, acp.UnstableDidFocusDocumentNotification) error
	}
	didOpenDocumenter interface {
		UnstableDidOpenDocument(context.Context, acp.UnstableDidOpenDocumentNotification) error
	}
	didSaveDocumenter interface {
		UnstableDidSaveDocument(context.Context, acp.UnstableDidSaveDocumentNotification) error
	}
	acceptNeser interface {
		UnstableAcceptNes(context.Context, acp.UnstableAcceptNesNotification) error
	}
	rejectNeser interface {
		UnstableRejectNes(context.Context, acp.UnstableRejectNesNotification) error
	}
)

// takes returns how to find a method of an optional interface of agents.
func takes[A, P any](method func(A, context.Context, P) error) func(acp.Agent) handler {
	return func(agent acp.Agent) handler {
		a, ok := agent.(A)
		if !ok {
			return nil
		}
		return func(ctx context.Context, params json.RawMessage) error {
			var p P
			if err := json.Unmarshal(params, &p); err != nil {
				return err
			}
			if err := any(&p).(interface{ Validate() error }).Validate(); err != nil {
				return err
			}
			return method(a, ctx, p)
		}
	}
}

// handler returns what takes a notification; nil if nothing does.
func (g *guard) handler(method string) handler {
	if find := notifications[method]; find != nil {
		return find(g.agent)
	}
	extension, ok := g.agent.(acp.ExtensionMethodHandler)
	if !ok || !strings.HasPrefix(method, "_") {
		return nil
	}
	return func(ctx context.Context, params json.RawMessage) error {
		_, err := extension.HandleExtensionMethod(ctx, method, params)
		return err
	}
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
