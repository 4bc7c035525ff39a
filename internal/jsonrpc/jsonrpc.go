// Package jsonrpc has the codes of errors: those of JSON-RPC 2.0, section 5.1, and ACP's
// own.
package jsonrpc

const (
	Parse          = -32700
	InvalidRequest = -32600
	MethodNotFound = -32601
	InvalidParams  = -32602
	Internal       = -32603
	NotFound       = -32002 // ACP: a resource that does not exist
)
