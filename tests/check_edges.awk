# Reads file names of a tree from standard input and holds their #include lines to the file named by
# the variable `edges`. Run by check_edges.sh in the top folder of the tree. POSIX awk.

function complain(where, what) {
    print where ": " what
    n_errors++
}

function read_edges(    line, n, i, words, room, kind) {
    while ((getline line < edges) > 0) {
        sub(/#.*/, "", line)
        if (line ~ /^[ \t]*$/)
            continue
        if (line !~ /:/) {
            complain(edges, "no colon in '" line "'")
            continue
        }
        room = line
        sub(/:.*/, "", room)
        sub(/^[^:]*:/, "", line)
        kind = "room"
        if (room ~ /^vendor /) {
            kind = "vendor"
            sub(/^vendor +/, "", room)
        } else if (room == "system") {
            kind = "system"
        } else {
            listed[room] = 1
            if (room ~ /\// && room !~ /\.c$/)
                has_subrooms[substr(room, 1, index(room, "/") - 1)] = 1
        }
        n = split(line, words, /[ \t]+/)
        for (i = 1; i <= n; i++)
            if (words[i] != "")
                allow(kind, room, words[i])
    }
    close(edges)
}

function allow(kind, room, word) {
    if (kind == "system")
        system_header[word] = 1
    else if (kind == "vendor")
        vendor_header[room, word] = 1
    else {
        allowed[room, word] = 1
        if (word ~ /\.h$/)
            word = room_of("src/" word)
        if (word != "*")
            allowed_edge[room, word] = 1
    }
}

# The room of a file: itself if it is listed, else its folder, as deep as rooms are listed there; ""
# if it is in none.
function room_of(path,    parts, n) {
    if (substr(path, 5) in listed)
        return substr(path, 5)
    n = split(path, parts, "/")
    if (parts[1] == "include")
        return "include"
    if (n < 3)
        return ""
    if (n > 3 && parts[2] in has_subrooms)
        return parts[2] "/" parts[3]
    return parts[2]
}

function exists(path,    line, found) {
    found = (getline line < path) >= 0
    close(path)
    return found
}

function is_known(header, room,    slash) {
    if (header in system_header || (room, header) in vendor_header)
        return 1
    # oneapi/dnnl/dnnl.h is in the folders oneapi/dnnl/ and oneapi/
    while ((slash = match(header, /\/[^\/]*\/?$/)) > 0) {
        header = substr(header, 1, slash)
        if (header in system_header || (room, header) in vendor_header)
            return 1
        header = substr(header, 1, slash - 1)
    }
    return 0
}

function check_include(where, room, target, quoted,    other, shown) {
    shown = quoted ? "\"" target "\"" : "<" target ">"
    if (quoted && target ~ /(^|\/)\.\.?\//) {
        complain(where, shown ": paths start at src/ and go through no dots")
        return
    }
    if (quoted && exists("src/" target))
        other = room_of("src/" target)
    else if (exists("include/" target))
        other = "include"
    else {
        if (!is_known(target, room))
            complain(where, room " may not include " shown " (not among its vendor headers nor " \
                            "the system's; and paths in quotes start at src/)")
        return
    }
    if (other == room)
        return
    if (!((room, other) in edge))
        edge[room, other] = where
    if (!((room, other) in allowed || (room, target) in allowed || (room, "*") in allowed))
        complain(where, room " may not include " ((room, "has", other) in partly ? target : other) \
                        " (" shown ")")
}

function check_file(path,    room, line, n_lines, target, quoted) {
    room = room_of(path)
    if (room == "") {
        complain(path, "not in a room")
        return
    }
    if (!(room in listed) && room != "include") {
        complain(path, "room " room " is not listed in " edges)
        return
    }
    while ((getline line < path) > 0) {
        n_lines++
        if (line !~ /^[ \t]*#[ \t]*include/)
            continue
        sub(/^[ \t]*#[ \t]*include[ \t]*/, "", line)
        quoted = line ~ /^"/
        target = line
        if (!sub(/^["<]/, "", target)) {
            complain(path ":" n_lines, "an include must name its file, not " line)
            continue
        }
        sub(/[">].*/, "", target)
        check_include(path ":" n_lines, room, target, quoted)
    }
    close(path)
}

# Looks for a circle among the pairs (a, b) of `graph` by removing, again and again, the rooms that
# lead nowhere or are led to by none; the rooms that stay are on a circle or between two.
function check_circle(graph, what,    pair, ends, leads, led_to, alive, changed, room, text) {
    for (pair in graph) {
        split(pair, ends, SUBSEP)
        alive[ends[1]] = alive[ends[2]] = 1
    }
    do {
        changed = 0
        split("", leads)
        split("", led_to)
        for (pair in graph) {
            split(pair, ends, SUBSEP)
            if (ends[1] in alive && ends[2] in alive)
                leads[ends[1]] = led_to[ends[2]] = 1
        }
        for (room in alive)
            if (!(room in leads && room in led_to)) {
                delete alive[room]
                changed = 1
                break
            }
    } while (changed)
    for (pair in graph) {
        split(pair, ends, SUBSEP)
        if (ends[1] in alive && ends[2] in alive)
            text = text "\n    " ends[1] " -> " ends[2] (graph[pair] == 1 ? "" : "  " graph[pair])
    }
    if (text != "")
        complain(edges, what " form a circle among:" text)
}

BEGIN {
    read_edges()
    # `cli: *` allows every room, so it is an edge to every room.
    for (room in listed)
        if ((room, "*") in allowed)
            for (other in listed)
                if (other != room)
                    allowed_edge[room, other] = 1
    # Where only a header of a room is allowed, the message names the header.
    for (pair in allowed) {
        split(pair, ends, SUBSEP)
        if (ends[2] ~ /\.h$/)
            partly[ends[1], "has", room_of("src/" ends[2])] = 1
    }
}

{
    check_file($0)
}

END {
    if (NR == 0)
        complain(edges, "no sources found")
    check_circle(edge, "the includes")
    check_circle(allowed_edge, "the allowed edges")
    if (n_errors > 0) {
        print n_errors " violation" (n_errors == 1 ? "" : "s") " of " edges
        exit 1
    }
}
