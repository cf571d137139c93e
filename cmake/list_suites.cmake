# cmake -D EXECUTABLE=… -D PREFIX=… -D OUTPUT=… -P list_suites.cmake: lists the tests of a GoogleTest
# binary and writes a file that adds one test for each suite to ctest.
execute_process(COMMAND ${EXECUTABLE} --gtest_list_tests TIMEOUT 120
                OUTPUT_VARIABLE listing ERROR_VARIABLE errors RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "${EXECUTABLE} does not list its tests (${code}):\n${listing}${errors}")
endif()
# A suite's line ends in a dot, or in a dot and a comment; its tests follow, indented.
string(REPLACE ";" "," listing "${listing}")
string(REGEX REPLACE "(^|\n)([^ \n]+)\\.[^\n]*" "\n;\\2" listing "${listing}")
set(content "")
foreach(lines IN LISTS listing)
  string(REGEX MATCH "^[^ \n]+" suite "${lines}")
  string(REGEX MATCHALL "\n  [^\n]+" tests "${lines}")
  if(suite STREQUAL "" OR tests STREQUAL "")
    continue()
  endif()
  # Suites of many tests start first, so that none of them is left for the end.
  list(LENGTH tests count)
  math(EXPR timeout "900 + 30 * ${count}")
  string(APPEND content "add_test([[${PREFIX}.${suite}]] [[${EXECUTABLE}]] [[--gtest_filter=${suite}.*]])\n"
                        "set_tests_properties([[${PREFIX}.${suite}]] PROPERTIES TIMEOUT ${timeout} COST ${count})\n")
endforeach()
if(content STREQUAL "")
  message(FATAL_ERROR "${EXECUTABLE} has no tests")
endif()
file(WRITE ${OUTPUT} "${content}")
