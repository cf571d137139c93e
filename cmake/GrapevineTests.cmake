# grapevine_discover_suites(<target> <prefix> [SLOW suite…]): makes the tests of a GoogleTest binary tests of
# ctest, found anew whenever the binary is built: each slow suite for itself, <prefix>.<suite>, in the
# order of the list, and the others several together, <prefix>.<suite>+<suite>…. Not a process for each
# test, as gtest_discover_tests has it: it would spend most of a second on loading LibTorch every time.
function(grapevine_discover_suites target prefix)
  cmake_parse_arguments(ARG "" "" "SLOW" ${ARGN})
  list(JOIN ARG_SLOW "|" slow)
  set(tests ${CMAKE_CURRENT_BINARY_DIR}/${target}_suites.cmake)
  add_custom_command(TARGET ${target} POST_BUILD BYPRODUCTS ${tests} VERBATIM
      COMMAND ${CMAKE_COMMAND} -D EXECUTABLE=$<TARGET_FILE:${target}> -D PREFIX=${prefix}
              -D "SLOW=${slow}" -D OUTPUT=${tests} -P ${CMAKE_SOURCE_DIR}/cmake/list_suites.cmake)
  # Where the binary was never built, one test says so.
  set(include ${CMAKE_CURRENT_BINARY_DIR}/${target}_include.cmake)
  file(WRITE ${include} "if(EXISTS [[${tests}]])\n  include([[${tests}]])\nelse()\n"
                        "  add_test([[${target} is not built]] [[${target}]])\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${include})
endfunction()
