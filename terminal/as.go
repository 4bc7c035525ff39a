package terminal

// As returns t as a T if it is one, or the first terminal that it wraps and that is
// one: a wrapper has the method Unwrap() Terminal. So an optional interface, such as
// [ActivityReader], is found behind a Terminal that counts or logs:
//
//	if streams, ok := terminal.As[terminal.StreamReader](t); ok {
//
// A wrapper that changes what such an interface would show implements it itself.
func As[T any](t Terminal) (T, bool) {
	for t != nil {
		if found, ok := t.(T); ok {
			return found, true
		}
		wrapper, ok := t.(interface{ Unwrap() Terminal })
		if !ok {
			break
		}
		t = wrapper.Unwrap()
	}
	var none T
	return none, false
}
