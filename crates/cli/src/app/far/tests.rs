use super::*;

fn split(by: fn(&[u8]) -> Result<Inside, Failure>, path: &Path, end: &str) -> (PathBuf, String) {
    let mut typed = path.as_os_str().as_bytes().to_vec();
    typed.extend_from_slice(end.as_bytes());
    let (root, rest) = by(&typed).unwrap();
    (root, String::from_utf8(rest).unwrap())
}

#[test]
fn what_is_fetched_is_named_in_its_folder() {
    let tmp = tempfile::tempdir().unwrap();
    let root = tmp.path().canonicalize().unwrap();
    fs::create_dir(root.join("d")).unwrap();
    fs::write(root.join("d/f"), "x").unwrap();
    assert_eq!(
        split(fetch_one, &root.join("d/f"), ""),
        (root.join("d"), "f".into())
    );
    assert_eq!(
        split(fetch_one, &root.join("d"), ""),
        (root.clone(), "d".into())
    );
    assert_eq!(
        split(fetch_one, &root.join("d"), "/"),
        (root.clone(), "d/".into())
    );
    assert_eq!(
        split(fetch_one, &root.join("d/.."), "/d/f"),
        (root.join("d"), "f".into())
    );
    for contents in ["/.", "/./", "/../d/."] {
        let found = split(fetch_one, &root.join("d"), contents);
        assert_eq!(found, (root.clone(), "d/".into()), "{contents}");
    }
    let inner = split(fetch_one, &root.join("d"), "/..");
    let name = root.file_name().unwrap().to_str().unwrap();
    let above = root.parent().unwrap().to_path_buf();
    assert_eq!(inner, (above, format!("{name}/")));
    let missing = fetch_one(root.join("none").as_os_str().as_bytes()).unwrap_err();
    assert_eq!(missing.exit, Exit::SourceMissing);
}

#[test]
fn several_are_named_from_the_folder_above_all() {
    let tmp = tempfile::tempdir().unwrap();
    let root = tmp.path().canonicalize().unwrap();
    for folder in ["a/b/c", "a/b-c"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("a/b/f"), "x").unwrap();
    let below = |names: &[&str]| {
        let typed: Vec<Vec<u8>> = names
            .iter()
            .map(|name| format!("{}/{name}", root.display()).into_bytes())
            .collect();
        let (folder, rests) = fetch(&typed).map_err(|e| (e.exit, e.text))?;
        let rests = rests.into_iter().map(|r| String::from_utf8(r).unwrap());
        Ok((folder, rests.collect::<Vec<_>>().join(" ")))
    };
    for (names, folder, rests) in [
        (&["a/b/f", "a/b/c"][..], "a/b", "f c"),
        (&["a/b/f", "a/b/c/"], "a/b", "f c/"),
        (&["a/b/f", "a/b-c"], "a", "b/f b-c"),
        (&["a/b/c/", "a/b/"], "a", "b/c/ b/"),
        (&["a/none/x/", "a/b/f"], "a", "none/x/ b/f"),
        (&["a/b/f/x", "a/b/f/", "a/b/f"], "a/b", "f/x f/ f"),
    ] {
        let expected = Ok((root.join(folder), rests.to_owned()));
        assert_eq!(below(names), expected, "{names:?}");
    }
    let top = fetch(&[b"/".to_vec(), b"/etc".to_vec(), b"/etc/".to_vec()]).unwrap();
    let rests = [&b""[..], b"etc", b"etc/"].map(<[u8]>::to_vec).to_vec();
    assert_eq!(top, (PathBuf::from("/"), rests));
    let (exit, text) = below(&["x", "a/y"]).unwrap_err();
    assert_eq!(exit, Exit::SourceMissing);
    assert!(text.contains("/x: ") && text.contains("/a/y: "), "{text}");
    let many = vec![root.join("a/b/f").into_os_string().into_vec(); 9_000];
    assert!(fetch(&many).is_ok());
    let long = [&many[..], &[root.join("a/b-c").into_os_string().into_vec()]].concat();
    assert_eq!(fetch(&long).unwrap_err().exit, Exit::Usage);
}

#[test]
fn what_is_delivered_starts_from_the_nearest_folder() {
    let tmp = tempfile::tempdir().unwrap();
    let root = tmp.path().canonicalize().unwrap();
    fs::write(root.join("f"), "x").unwrap();
    assert_eq!(split(nearest, &root, ""), (root.clone(), String::new()));
    assert_eq!(split(nearest, &root, "/"), (root.clone(), String::new()));
    assert_eq!(split(nearest, &root, "/f"), (root.clone(), "f".into()));
    assert_eq!(
        split(nearest, &root, "/a/b/"),
        (root.clone(), "a/b/".into())
    );
    let here = env::current_dir().unwrap().canonicalize().unwrap();
    assert_eq!(
        split(nearest, Path::new("new"), ""),
        (here.clone(), "new".into())
    );
    assert_eq!(split(nearest, Path::new(""), ""), (here, String::new()));
}

#[test]
fn a_server_without_clients_exits_while_its_input_is_open() {
    let tmp = tempfile::tempdir().unwrap();
    let ask = Ask {
        key: Identity::generate().unwrap().public().to_string(),
        put: true,
        paths: vec![to_hex(tmp.path().as_os_str().as_bytes())],
        release: String::new(),
        ports: None,
        ordered: None,
    };
    let stop = Stop::new().unwrap();
    let opened = Opened::of(&ask).map_err(|e| e.text).unwrap();
    // Ends, although nobody but the server itself can set it.
    opened
        .until(&stop, Duration::from_millis(1))
        .map_err(|e| e.text)
        .unwrap();
    assert!(stop.is_set());
}
