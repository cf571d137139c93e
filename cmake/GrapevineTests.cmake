# grapevine_discover_suites(<target> <prefix>): makes each suite of a GoogleTest binary a test of ctest,
# <prefix>.<suite>, found anew whenever the binary is built. For binaries of many short tests: a process
# for each of them, as gtest_discover_tests has it, would spend a second on loading LibTorch every time.
function(grapevine_discover_suites target prefix)
  set(tests ${CMAKE_CURRENT_BINARY_DIR}/${target}_suites.cmake)
  add_custom_command(TARGET ${target} POST_BUILD BYPRODUCTS ${tests} VERBATIM
      COMMAND ${CMAKE_COMMAND} -D EXECUTABLE=$<TARGET_FILE:${target}> -D PREFIX=${prefix}
              -D OUTPUT=${tests} -P ${CMAKE_SOURCE_DIR}/cmake/list_suites.cmake)
  # Where the binary was never built, one test says so.
  set(include ${CMAKE_CURRENT_BINARY_DIR}/${target}_include.cmake)
  file(WRITE ${include} "if(EXISTS [[${tests}]])\n  include([[${tests}]])\nelse()\n"
                        "  add_test([[${target} is not built]] [[${target}]])\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${include})
endfunction()
