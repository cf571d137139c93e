# cmake -D EXECUTABLE=… -D PREFIX=… -D OUTPUT=… -P list_suites.cmake: lists the tests of a GoogleTest
# binary and writes a file that adds one test for each suite to ctest.
execute_process(COMMAND ${EXECUTABLE} --gtest_list_tests TIMEOUT 120
                OUTPUT_VARIABLE listing ERROR_VARIABLE errors RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "${EXECUTABLE} does not list its tests (${code}):\n${listing}${errors}")
endif()
# A suite's line ends in a dot, or in a dot and a comment; its tests follow, indented.
string(REGEX MATCHALL "(^|\n)[^ \n]+\\." suites "${listing}")
set(content "")
foreach(suite IN LISTS suites)
  string(REGEX REPLACE "^\n|\\.$" "" suite ${suite})
  string(APPEND content "add_test([[${PREFIX}.${suite}]] [[${EXECUTABLE}]] [[--gtest_filter=${suite}.*]])\n"
                        "set_tests_properties([[${PREFIX}.${suite}]] PROPERTIES TIMEOUT 900)\n")
endforeach()
if(content STREQUAL "")
  message(FATAL_ERROR "${EXECUTABLE} has no tests")
endif()
file(WRITE ${OUTPUT} "${content}")
