# web_files: what a report is made of: src/report/web, and the libraries that draw. These come from
# Debian's packages, are compiled in, and are no part of this repository. tools/fetch-web.sh unpacks
# them into build-web; where the packages are installed, those are taken. Without them everything
# builds; the end of each build, the start of a training and `cleave report` say what is missing.
set(web_own "${CMAKE_CURRENT_SOURCE_DIR}/src/report/web")
file(GLOB web_files CONFIGURE_DEPENDS "${web_own}/*.html" "${web_own}/*.css" "${web_own}/*.js")

# Found anew whenever they come or go.
set(web_folder "${CMAKE_CURRENT_SOURCE_DIR}/build-web")
file(GLOB web_fetched CONFIGURE_DEPENDS "${web_folder}/*.js" "${web_folder}/*.copyright")
list(APPEND web_files ${web_fetched})

function(cleave_add_web name installed package)
  set(notice "/usr/share/doc/${package}/copyright")
  if(NOT EXISTS "${web_folder}/${name}.min.js" AND EXISTS "${installed}")
    set(copy "${CMAKE_CURRENT_BINARY_DIR}/web")
    configure_file("${installed}" "${copy}/${name}.min.js" COPYONLY)
    list(APPEND web_files "${copy}/${name}.min.js")
    if(EXISTS "${notice}")
      configure_file("${notice}" "${copy}/${name}.copyright" COPYONLY)
      list(APPEND web_files "${copy}/${name}.copyright")
    endif()
    set(web_files "${web_files}" PARENT_SCOPE)
  elseif(NOT EXISTS "${web_folder}/${name}.min.js")
    list(APPEND web_missing ${package})
    set(web_missing "${web_missing}" PARENT_SCOPE)
  endif()
endfunction()
cleave_add_web(chart /usr/share/javascript/chart.js/chart.min.js libjs-chart.js)
cleave_add_web(d3 /usr/share/nodejs/d3/dist/d3.min.js node-d3)
cleave_add_web(dagre /usr/share/nodejs/dagre/dist/dagre.min.js node-dagre-layout)

# Said last, where it is seen. The program depends on nothing of it.
if(web_missing)
  list(JOIN web_missing ", " web_names)
  add_custom_target(web_notice ALL VERBATIM COMMAND "${CMAKE_COMMAND}" -E echo
    "WARNING: built without ${web_names}: 'cleave report' cannot write reports ('make' with a network fetches them)")
endif()
