# cmake -D OUTPUT=… -D HEADER=… -D FUNCTION=… -D VERSION=… -D FILES="path|…" -P digest_files.cmake: a source
# with a function that HEADER declares: it gives VERSION and the first digits of a digest of the files.
string(REPLACE "|" ";" FILES "${FILES}")
foreach(file IN LISTS FILES)
  file(SHA256 "${file}" digest)
  string(APPEND digests ${digest})
endforeach()
string(SHA256 digest "${digests}")
string(SUBSTRING ${digest} 0 8 digits)
file(WRITE "${OUTPUT}" "// Made by cmake/digest_files.cmake.
#include \"${HEADER}\"

namespace grapevine {

const char* ${FUNCTION}() { return \"${VERSION} (messages ${digits})\"; }

}  // namespace grapevine
")
