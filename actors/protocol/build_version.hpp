// build_version(): what processes compare before they exchange anything else.
#pragma once

namespace grapevine {

// The version of the program and, in parentheses, the first digits of a digest of the files that
// define its messages: "0.1.0 (messages 5f3a91c2)". Builds in which these files differ, if by a
// comment, refuse each other: the version alone stays the same between two releases. Made by the
// build. Any thread.
const char* build_version();

}  // namespace grapevine
