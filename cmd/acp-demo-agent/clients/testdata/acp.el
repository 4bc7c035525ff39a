;;; acp.el --- stand-in for acp.el in tests -*- lexical-binding: t; -*-

;; The functions that docs/editors.md uses, with the names and keywords of acp.el,
;; for machines that have Emacs and not acp.el. The agent is started as acp.el
;; does it: on pipes, UTF-8, one message a line, no terminals offered, and what it
;; writes to its standard error is an error.

(require 'cl-lib)
(require 'json)
(require 'map)

(cl-defun acp-make-client (&key command command-params environment-variables context-buffer)
  (list (cons :command (cons command command-params)) (cons :environment environment-variables)
        (cons :buffer context-buffer) (cons :process nil) (cons :handler nil)
        (cons :answers nil) (cons :last 0)))

(cl-defun acp-subscribe-to-notifications (&key client on-notification _buffer)
  (setf (alist-get :handler client) on-notification))

(defun acp--receive (client line)
  (let ((message (json-parse-string line :object-type 'alist :null-object nil :false-object nil)))
    (cond ((alist-get 'method message)
           (when (alist-get :handler client)
             (funcall (alist-get :handler client) message)))
          (t (push message (alist-get :answers client))))))

(defun acp--start (client)
  (let ((coding-system-for-read 'utf-8-unix) (coding-system-for-write 'utf-8-unix)
        (pending "")
        (process-environment (append (alist-get :environment client) process-environment)))
    (setf (alist-get :process client)
          (make-process
           :name "acp" :command (alist-get :command client) :connection-type 'pipe :noquery t
           :stderr (make-pipe-process :name "acp-stderr" :noquery t
                                      :filter (lambda (_ text) (error "The agent's standard error: %s" text)))
           :filter (lambda (_ text)
                     (setq pending (concat pending text))
                     (while (string-match "\n" pending)
                       (let ((line (substring pending 0 (match-beginning 0))))
                         (setq pending (substring pending (match-end 0)))
                         (acp--receive client line))))))))

(cl-defun acp-send-request (&key client request _buffer on-success on-failure sync)
  (unless (alist-get :process client) (acp--start client))
  (let ((id (cl-incf (alist-get :last client))) answer)
    (process-send-string
     (alist-get :process client)
     (concat (json-serialize `((jsonrpc . "2.0") (id . ,id) ,@request)) "\n"))
    (when sync
      (while (not (setq answer (seq-find (lambda (a) (equal id (alist-get 'id a))) (alist-get :answers client))))
        (unless (or (accept-process-output (alist-get :process client) 30)
                    (process-live-p (alist-get :process client)))
          (error "The agent does not answer")))
      (if (alist-get 'error answer)
          (if on-failure (funcall on-failure (alist-get 'error answer)) (error "%S" answer))
        (when on-success (funcall on-success (alist-get 'result answer)))
        (alist-get 'result answer)))))

(cl-defun acp-make-initialize-request (&key protocol-version)
  `((method . "initialize")
    (params (protocolVersion . ,protocol-version)
            (clientCapabilities (fs (readTextFile . :false) (writeTextFile . :false))))))

(cl-defun acp-make-session-new-request (&key cwd)
  `((method . "session/new") (params (cwd . ,cwd) (mcpServers . []))))

(cl-defun acp-make-session-prompt-request (&key session-id prompt)
  `((method . "session/prompt") (params (sessionId . ,session-id) (prompt . ,(vconcat prompt)))))

(cl-defun acp-shutdown (&key client)
  (let ((process (alist-get :process client)))
    (when (process-live-p process) (delete-process process))))

(provide 'acp)
