package bridge

// Chunks is what Update sends of an update.
var Chunks = chunks
