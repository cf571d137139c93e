# cmake -D OUTPUT=… -D HEADER=… -D TEXTS="kName=path|…" -P embed_texts.cmake: a source with the contents
# of text files as std::string_view constants, which HEADER declares.
set(source "// Made by cmake/embed_texts.cmake.\n#include \"${HEADER}\"\n\nnamespace grapevine {\n")
string(REPLACE "|" ";" TEXTS "${TEXTS}")
foreach(text IN LISTS TEXTS)
  string(REGEX MATCH "^([^=]+)=(.*)$" matched "${text}")
  set(name ${CMAKE_MATCH_1})
  file(READ "${CMAKE_MATCH_2}" content)
  # A page that makes no request has no addresses either: libraries name theirs in comments.
  string(REGEX REPLACE "https?://" "" content "${content}")
  string(APPEND source "\nconst std::string_view ${name}{R\"embedded(${content})embedded\"};\n")
endforeach()
string(APPEND source "\n}  // namespace grapevine\n")
file(WRITE "${OUTPUT}" "${source}")
