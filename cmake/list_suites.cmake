# cmake -D EXECUTABLE=… -D PREFIX=… -D SLOW="suite|…" -D OUTPUT=… -P list_suites.cmake: lists the tests
# of a GoogleTest binary and writes a file that adds them to ctest: each slow suite as one test, the
# others several together. See grapevine_discover_suites().
execute_process(COMMAND ${EXECUTABLE} --gtest_list_tests TIMEOUT 120
                OUTPUT_VARIABLE listing ERROR_VARIABLE errors RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "${EXECUTABLE} does not list its tests (${code}):\n${listing}${errors}")
endif()
# A suite's line ends in a dot, or in a dot and a comment; its tests follow, indented.
string(REPLACE ";" "," listing "${listing}")
string(REGEX REPLACE "(^|\n)([^ \n]+)\\.[^\n]*" "\n;\\2" listing "${listing}")
string(REPLACE "|" ";" SLOW "${SLOW}")
set(most_tests 25)  # of an entry, but for suites that have more
set(most_suites 8)
set(content "")
set(together "")  # suites of the next entry
set(tests_together 0)

# Its name has those of all its suites, so that `ctest -R SUITE` finds it.
function(add_entry suites count cost)
  list(JOIN suites "+" name)
  list(TRANSFORM suites APPEND ".*")
  list(JOIN suites ":" filter)
  math(EXPR timeout "900 + 30 * ${count}")
  string(APPEND content "add_test([[${PREFIX}.${name}]] [[${EXECUTABLE}]] [[--gtest_filter=${filter}]])\n"
                        "set_tests_properties([[${PREFIX}.${name}]] PROPERTIES TIMEOUT ${timeout} COST ${cost})\n")
  set(content "${content}" PARENT_SCOPE)
endfunction()

foreach(lines IN LISTS listing)
  string(REGEX MATCH "^[^ \n]+" suite "${lines}")
  string(REGEX MATCHALL "\n  [^\n]+" tests "${lines}")
  if(suite STREQUAL "" OR tests STREQUAL "")
    continue()
  endif()
  # Those of the highest COST start first (ctest measures only where none is given), so that none of
  # them is left for the end: slow suites as the list has them, then entries of many tests.
  list(LENGTH tests count)
  list(FIND SLOW "${suite}" place)
  if(place GREATER_EQUAL 0)
    list(APPEND found_slow "${suite}")
    math(EXPR cost "1000 - ${place}")
    add_entry("${suite}" ${count} ${cost})
    continue()
  endif()
  list(APPEND together "${suite}")
  math(EXPR tests_together "${tests_together} + ${count}")
  list(LENGTH together suites)
  if(tests_together GREATER_EQUAL most_tests OR suites EQUAL most_suites)
    add_entry("${together}" ${tests_together} ${tests_together})
    set(together "")
    set(tests_together 0)
  endif()
endforeach()
foreach(suite IN LISTS SLOW)
  list(FIND found_slow "${suite}" place)
  if(place EQUAL -1)
    message(WARNING "${EXECUTABLE} has no suite ${suite}, which tests/CMakeLists.txt lists as SLOW")
  endif()
endforeach()
if(NOT together STREQUAL "")
  add_entry("${together}" ${tests_together} ${tests_together})
endif()
if(content STREQUAL "")
  message(FATAL_ERROR "${EXECUTABLE} has no tests")
endif()
file(WRITE ${OUTPUT} "${content}")
