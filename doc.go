// Package termbridge is the root of the module. It holds no code: start with
// package bridge for an agent that speaks ACP, with package localterm for one
// that does not, and with docs/architecture.md for how they fit together.
package termbridge
