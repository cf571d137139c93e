# One precompiled header serves all targets: ATen/ATen.h alone costs 10 s per unit without it, 2 s
# with it.
if(GRAPEVINE_PCH)
  file(WRITE ${CMAKE_BINARY_DIR}/pch_stub.cpp "")
  add_library(grapevine_pch_owner STATIC ${CMAKE_BINARY_DIR}/pch_stub.cpp)
  target_link_libraries(grapevine_pch_owner PUBLIC grapevine_options grapevine::torch spdlog::spdlog
                        nlohmann_json::nlohmann_json caf::core)
  target_precompile_headers(grapevine_pch_owner PRIVATE ${CMAKE_SOURCE_DIR}/cmake/pch.hpp)
endif()

function(grapevine_pch target)
  if(GRAPEVINE_PCH)
    # The include paths and definitions must be those that the header was compiled with.
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:grapevine_pch_owner>)
    target_precompile_headers(${target} REUSE_FROM grapevine_pch_owner)
  endif()
endfunction()

# Several sources make one unit, so that headers are read once for all of them. A change of one source
# then compiles its whole unit: developers may prefer -DGRAPEVINE_UNITY=OFF (preset dev).
function(grapevine_unity target)
  if(GRAPEVINE_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 10)
    # GCC takes an included source for a header, whose unnamed namespaces differ from unit to unit.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# grapevine_proto(<name> <file>): the static library grapevine_<name> of what protoc makes of a file;
# includes are by the file's name, as "<file>.pb.h".
function(grapevine_proto name file)
  add_library(grapevine_${name} STATIC)
  protobuf_generate_cpp(sources headers ${CMAKE_SOURCE_DIR}/${file})
  target_sources(grapevine_${name} PRIVATE ${sources} ${headers})
  target_include_directories(grapevine_${name} SYSTEM PUBLIC $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}>)
  target_link_libraries(grapevine_${name} PUBLIC protobuf::libprotobuf-lite)
endfunction()

# grapevine_texts(<target> <header> <constant>=<file>…): the contents of text files in a target, as the
# constants that the header declares.
function(grapevine_texts target header)
  get_filename_component(name ${header} NAME_WE)
  set(output ${CMAKE_BINARY_DIR}/${name}.cpp)
  list(TRANSFORM ARGN REPLACE "^[^=]+=" "" OUTPUT_VARIABLE files)
  list(JOIN ARGN "|" texts)
  set(script ${CMAKE_SOURCE_DIR}/cmake/embed_texts.cmake)
  add_custom_command(OUTPUT ${output} DEPENDS ${script} ${files} VERBATIM
      COMMAND ${CMAKE_COMMAND} -D OUTPUT=${output} -D HEADER=${header} -D "TEXTS=${texts}" -P ${script})
  target_sources(${target} PRIVATE ${output})
endfunction()

# grapevine_version(<target> <header> <function> <file>…): the version with a digest of those files, in a
# target, as the function that the header declares.
function(grapevine_version target header function)
  set(output ${CMAKE_BINARY_DIR}/${function}.cpp)
  list(JOIN ARGN "|" files)
  set(script ${CMAKE_SOURCE_DIR}/cmake/digest_files.cmake)
  add_custom_command(OUTPUT ${output} DEPENDS ${script} ${ARGN} VERBATIM
      COMMAND ${CMAKE_COMMAND} -D OUTPUT=${output} -D HEADER=${header} -D FUNCTION=${function}
              -D VERSION=${PROJECT_VERSION} -D "FILES=${files}" -P ${script})
  target_sources(${target} PRIVATE ${output})
endfunction()

# grapevine_sources(<variable> <folder> [file or sub-folder…]): all sources in a folder and its
# sub-folders but those.
function(grapevine_sources variable root)
  file(GLOB_RECURSE sources RELATIVE ${root} CONFIGURE_DEPENDS ${root}/*.cpp)
  foreach(name IN LISTS ARGN)
    string(REPLACE "." "\\." pattern ${name})
    list(FILTER sources EXCLUDE REGEX "^${pattern}(/|$)")
  endforeach()
  list(TRANSFORM sources PREPEND ${root}/)
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# grapevine_library(<folder> [EXCLUDE file or sub-folder…] LINKS target…): the static library
# grapevine_<folder> of all sources in a folder and its sub-folders.
function(grapevine_library folder)
  cmake_parse_arguments(ARG "" "" "EXCLUDE;LINKS" ${ARGN})
  set(root ${CMAKE_SOURCE_DIR}/${folder})
  grapevine_sources(sources ${root} ${ARG_EXCLUDE})
  if(NOT sources)
    set(sources ${CMAKE_BINARY_DIR}/pch_stub.cpp)
  endif()
  add_library(grapevine_${folder} STATIC ${sources})
  target_link_libraries(grapevine_${folder} PUBLIC grapevine_options ${ARG_LINKS})
  grapevine_pch(grapevine_${folder})
  grapevine_unity(grapevine_${folder})
endfunction()
