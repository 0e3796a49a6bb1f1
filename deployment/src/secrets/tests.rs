use super::*;

#[test]
fn names_of_keys_tokens_and_passwords_are_secret() {
    for name in [
        "HF_TOKEN",
        "--api-key",
        "OPENAI_API_KEY",
        "password",
        "DB_PASSWD",
        "apikey",
        "AWS_SECRET_ACCESS_KEY",
        "Authorization",
        "ssl_keyfile_password",
        "GHTOKEN",
    ] {
        assert!(is_secret(name), "{name}");
    }
    for name in ["max_total_num_tokens", "tokenizer_path", "SGLANG_OPT_USE_TOPK_V2", "keyboard", "--max-prefill-tokens"]
    {
        assert!(!is_secret(name), "{name}");
    }
}

#[test]
fn values_are_hidden_in_every_spelling() {
    let cases = [
        ("HF_TOKEN=hf_abc next", "HF_TOKEN=<hidden> next"),
        ("--api-key s3cret --tp 2", "--api-key <hidden> --tp 2"),
        ("--api-key=s3cret --tp 2", "--api-key=<hidden> --tp 2"),
        (r#"{"api_key": "s3cret", "tp_size": 2}"#, r#"{"api_key": "<hidden>", "tp_size": 2}"#),
        ("{'admin_api_key': 's3 cret', 'a': 1}", "{'admin_api_key': '<hidden>', 'a': 1}"),
        ("api_key='s3cret', port=1", "api_key='<hidden>', port=1"),
        ("Authorization: Bearer s3cret", "Authorization: Bearer <hidden>"),
        ("got Bearer s3cret, fine", "got Bearer <hidden>, fine"),
        ("http://me:s3cret@host/v1", "http://<hidden>@host/v1"),
        ("PASSWORD=123456", "PASSWORD=<hidden>"),
        ("max_total_num_tokens=4096", "max_total_num_tokens=4096"),
        ("the token was refused", "the token was refused"),
        ("https://host/a@b", "https://host/a@b"),
        ("naïve: kä=1 €", "naïve: kä=1 €"),
        ("key=", "key="),
        ("#token: 4096, token usage: 0.1", "#token: 4096, token usage: 0.1"),
        (r#"\"api_key\": \"s3cret\", x"#, r#"\"api_key\": \"<hidden>", x"#),
    ];
    for (text, expected) in cases {
        assert_eq!(hide(text), expected);
        assert!(!hide(text).contains("s3cret") && !hide(text).contains("s3 cret"));
    }
}

proptest::proptest! {
    #[test]
    fn a_hidden_value_is_gone_and_the_rest_stays(before in "[a-z ]{0,8}", value in "[A-Za-z0-9+/]{12,20}", after in " [a-z ]{0,8}") {
        for text in [format!("{before} HF_TOKEN={value}{after}"), format!("{before} \"password\": \"{value}\"{after}"), format!("{before} --api-key {value}{after}")] {
            let hidden = hide(&text);
            proptest::prop_assert!(!hidden.contains(&value), "{hidden}");
            proptest::prop_assert!(hidden.starts_with(&before) && hidden.ends_with(after.as_str()), "{hidden}");
        }
    }
}
